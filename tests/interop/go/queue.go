package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
)

// queue is a member of a share group, until it has accepted count records or is told to end. It says
// what the broker has taken as accepted.
func queue(ctx context.Context) error {
	refused := make(chan error, 1)
	cl, err := client(
		kgo.ShareGroup(*group),
		kgo.ConsumeTopics(*topic),
		kgo.ShareMaxRecords(100),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				select {
				case refused <- err:
				default:
				}
			}
		}),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	for accepted := 0; accepted < *count && ctx.Err() == nil; {
		fetches := cl.PollRecords(ctx, 100)
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.Canceled) {
				return failed.Err
			}
		}
		records := fetches.Records()
		cl.MarkAcks(kgo.AckAccept, records...)
		if err := cl.FlushAcks(context.Background()); err != nil {
			return err
		}
		select {
		case err := <-refused:
			return err
		default:
		}
		for _, r := range records {
			record(r)
		}
		accepted += len(records)
	}
	return nil
}
