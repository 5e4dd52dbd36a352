package main

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func cpu() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

var peak = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// drain reads count records as the only member of a new group, as fast as it can, and says what that took.
func drain(ctx context.Context) error {
	cl, err := client(
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	records, first, total, before := 0, 0, int64(0), 0.0
	var began time.Time
	for records < *count {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if began.IsZero() && fetches.NumRecords() > 0 {
			began, before, first = time.Now(), cpu(), fetches.NumRecords()
		}
		fetches.EachRecord(func(r *kgo.Record) {
			records++
			total += int64(len(r.Key)+len(r.Value)) + r.Offset + r.Timestamp.UnixMilli()
		})
	}
	seconds, used := time.Since(began).Seconds(), cpu()-before
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	kilobytes := 0
	if found := peak.FindSubmatch(status); found != nil {
		if kilobytes, err = strconv.Atoi(string(found[1])); err != nil {
			return err
		}
	}
	say(map[string]any{
		"records": records, "total": total, "seconds": seconds, "cpu_s": used, "peak_mb": float64(kilobytes) / 1000,
		"first": first,
	})
	return nil
}
