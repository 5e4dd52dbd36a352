// Command interop is franz-go as a test drives it: one subcommand per thing to show, events as
// JSON lines on standard output, a failure as exit status 1.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap   = flag.String("bootstrap", "", "addresses of brokers, with commas between them")
	topic       = flag.String("topic", "", "a topic")
	group       = flag.String("group", "", "a group")
	clientID    = flag.String("client-id", "franz-go", "the client's name")
	instance    = flag.String("instance", "", "the name of a static member")
	strategy    = flag.String("strategy", "cooperative-sticky", "how partitions are dealt")
	protocol    = flag.String("protocol", "classic", "or consumer")
	regex       = flag.Bool("regex", false, "the topic is an expression")
	count       = flag.Int("count", 0, "how many records")
	at          = flag.Int64("at", 0, "milliseconds since 1970")
	transaction = flag.String("transaction", "", "a transactional id")
	heartbeat   = flag.Duration("heartbeat", 200*time.Millisecond, "between two heartbeats")
	isolation   = flag.String("isolation", "read_uncommitted", "or read_committed")

	output sync.Mutex
)

// say prints one event.
func say(event map[string]any) {
	output.Lock()
	defer output.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(event); err != nil {
		os.Exit(1)
	}
}

func client(more ...kgo.Opt) (*kgo.Client, error) {
	secured, err := security()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.ClientID(*clientID),
	}, secured...), more...)...)
}

// produce writes count numbered records, key and value alike.
func produce(ctx context.Context) error {
	var more []kgo.Opt
	if *transaction != "" {
		more = append(more, kgo.TransactionalID(*transaction))
	}
	cl, err := client(more...)
	if err != nil {
		return err
	}
	defer cl.Close()
	// In a transaction two thirds are aborted: what comes before and behind that which is committed.
	rounds := []kgo.TransactionEndTry{kgo.TryCommit}
	if *transaction != "" {
		rounds = []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryAbort}
	}
	for _, end := range rounds {
		if *transaction != "" {
			if err := cl.BeginTransaction(); err != nil {
				return err
			}
		}
		records := make([]*kgo.Record, *count)
		for n := range records {
			text := []byte(fmt.Sprintf("%v-%d", end == kgo.TryCommit, n))
			records[n] = &kgo.Record{Topic: *topic, Key: text, Value: text}
		}
		if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
		if *transaction != "" {
			if err := cl.EndTransaction(ctx, end); err != nil {
				return err
			}
		}
	}
	return nil
}

func balancer() (kgo.GroupBalancer, error) {
	for _, known := range []kgo.GroupBalancer{
		kgo.CooperativeStickyBalancer(), kgo.StickyBalancer(), kgo.RangeBalancer(), kgo.RoundRobinBalancer(),
	} {
		if known.ProtocolName() == *strategy {
			return known, nil
		}
	}
	return nil, fmt.Errorf("no strategy %q", *strategy)
}

// moved reports partitions that came or went.
func moved(name string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		say(map[string]any{
			"event": name, "partitions": partitions, "at": float64(time.Now().UnixMicro()) / 1e6,
		})
	}
}

// consume is a member of the group, until it is told to end; it commits what it has said.
func consume(ctx context.Context) error {
	dealt, err := balancer()
	if err != nil {
		return err
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(dealt),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(500 * time.Millisecond),
		kgo.BlockRebalanceOnPoll(),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(moved("assigned")),
		kgo.OnPartitionsRevoked(moved("revoked")),
		kgo.OnPartitionsLost(moved("revoked")),
	}
	if *protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(
			options, kgo.HeartbeatInterval(*heartbeat), kgo.SessionTimeout(10*time.Second),
		)
	}
	if *instance != "" {
		options = append(options, kgo.InstanceID(*instance))
	}
	if *regex {
		options = append(options, kgo.ConsumeRegex())
	}
	cl, err := client(options...)
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	for {
		fetches := cl.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.Canceled) {
				return fmt.Errorf("%s/%d: %w", failed.Topic, failed.Partition, failed.Err)
			}
		}
		fetches.EachRecord(record)
		if err := cl.CommitUncommittedOffsets(context.Background()); err != nil {
			return err
		}
		cl.AllowRebalance()
		if ctx.Err() != nil {
			return nil
		}
	}
}

func record(r *kgo.Record) {
	say(map[string]any{
		"event": "record", "topic": r.Topic, "partition": r.Partition, "offset": r.Offset, "value": string(r.Value),
	})
}

// read gets count records without a group, from a time on.
func read(ctx context.Context) error {
	level := kgo.ReadUncommitted()
	if *isolation == "read_committed" {
		level = kgo.ReadCommitted()
	}
	cl, err := client(
		kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(*at)),
		kgo.FetchIsolationLevel(level),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	for got := 0; got < *count; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		got += fetches.NumRecords()
		fetches.EachRecord(record)
	}
	return nil
}

// admin makes, describes, grows and deletes a topic, and describes and deletes the group.
func admin(ctx context.Context) error {
	cl, err := client()
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, 3, 1, nil, *topic); err != nil {
		return err
	}
	grown, err := adm.UpdatePartitions(ctx, 5, *topic)
	if err != nil {
		return err
	}
	if err := grown.Error(); err != nil {
		return err
	}
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return err
	}
	for name, found := range topics {
		say(map[string]any{"event": "topic", "name": name, "partitions": len(found.Partitions)})
	}
	if _, err := adm.DeleteTopic(ctx, *topic); err != nil {
		return err
	}
	groups, err := adm.DescribeGroups(ctx, *group)
	if err != nil {
		return err
	}
	offsets, err := adm.FetchOffsets(ctx, *group)
	if err != nil {
		return err
	}
	total := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { total += o.At })
	say(map[string]any{"event": "group", "state": groups[*group].State, "offsets": total})
	deleted, err := adm.DeleteGroups(ctx, *group)
	if err != nil {
		return err
	}
	return deleted.Error()
}

func main() {
	commands := map[string]func(context.Context) error{
		"produce": produce, "consume": consume, "read": read, "admin": admin, "drain": drain,
		"queue": queue,
	}
	flag.Parse()
	run, known := commands[flag.Arg(0)]
	if !known {
		fmt.Fprintf(os.Stderr, "no command %q\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
