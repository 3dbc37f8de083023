package main

import (
	"context"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func pullingCases() []Case {
	return []Case{
		{"pull", "from an offset of a queue", map[string]int{"GoPullFrom": 1}, pullFrom},
		{"pull", "poll and acknowledge", map[string]int{"GoPoll": 4}, pullPoll},
	}
}

func (s *Session) puller(topic, group string) rocketmq.PullConsumer {
	client, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(s.resolver()),
		consumer.WithGroupName(group),
		consumer.WithInstance(s.unique("puller")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	must("new pull consumer", err)
	must("subscribe", client.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
	must("start of a pull consumer", client.Start())
	s.closeLater(client.Shutdown)
	return client
}

func pullFrom(s *Session) {
	sent := numbered("GoPullFrom", 10)
	queue := s.sendAll(s.producer(), sent)[0].MessageQueue
	client := s.puller("GoPullFrom", s.unique("go-pullers"))
	result, err := client.PullFrom(context.Background(), queue, 3, 4)
	must("pull", err)
	expect("status", result.Status, primitive.PullFound)
	expectInOrder(result.GetMessageExts(), sent[3:7])
	expect("next offset", result.NextBeginOffset, int64(7))
	expect("least offset", result.MinOffset, int64(0))
	expect("greatest offset", result.MaxOffset, int64(10))
	result, err = client.PullFrom(context.Background(), queue, 100, 4)
	must("pull beyond the end", err)
	expect("status beyond the end", result.Status, primitive.PullOffsetIllegal)
	expect("corrected offset", result.NextBeginOffset, int64(10))
}

func pullPoll(s *Session) {
	sent := numbered("GoPoll", 24)
	client := s.producer()
	s.sendAll(client, sent[:20])
	first := s.puller("GoPoll", "go-pollers")
	expectOnce(poll(first, 20), sent[:20])
	must("persist offsets", first.PersistOffset(context.Background(), "GoPoll"))
	must("shutdown", first.Shutdown())
	time.Sleep(quietTime)
	s.sendAll(client, sent[20:])
	second := s.puller("GoPoll", "go-pollers")
	expectOnce(poll(second, 4), sent[20:])
}

// poll takes and acknowledges messages, and then looks whether there are more.
func poll(from rocketmq.PullConsumer, count int) []*primitive.MessageExt {
	var messages []*primitive.MessageExt
	deadline := time.Now().Add(receiveTimeout)
	for time.Now().Before(deadline) {
		request, err := from.Poll(context.Background(), quietTime)
		if consumer.IsNoNewMsgError(err) {
			if len(messages) >= count {
				return messages
			}
			continue
		}
		must("poll", err)
		messages = append(messages, request.GetMsgList()...)
		from.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	fail("%d of %d messages came within %v", len(messages), count, receiveTimeout)
	return nil
}
