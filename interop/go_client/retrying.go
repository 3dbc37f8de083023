package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func retryCases() []Case {
	return []Case{
		{"retry", "a message that fails comes again", map[string]int{"GoRetry": 1}, retryOnce},
		{"retry", "a message that fails too often comes no more", map[string]int{"GoHopeless": 1}, retryTooOften},
	}
}

// introduce makes a group known before it is needed. The topic for its retries comes with its first
// consumer, which itself would look for it only half a minute later.
func (s *Session) introduce(topic, group string) {
	must("shutdown", s.subscribe(Subscription{topic: topic, group: group}).client.Shutdown())
	waitForTopic(s.admin(), "%RETRY%"+group, true)
}

func retryOnce(s *Session) {
	s.introduce("GoRetry", "go-retry")
	sent := numbered("GoRetry", 5)
	s.sendAll(s.producer(), sent)
	inbox := s.subscribe(Subscription{
		topic: "GoRetry",
		group: "go-retry",
		decide: func(message *primitive.MessageExt) consumer.ConsumeResult {
			if message.ReconsumeTimes < 2 && message.GetProperty("number") == "3" {
				return consumer.ConsumeRetryLater
			}
			return consumer.ConsumeSuccess
		},
	})
	var times []int32
	for _, message := range inbox.waitExactly(7) {
		if message.GetProperty("number") == "3" {
			expectSame(message, sent[3])
			times = append(times, message.ReconsumeTimes)
		}
	}
	expect("times of the one that failed", times, []int32{0, 1, 2})
}

// The group of this case is known to the check: it looks into the dead letter queue.
func retryTooOften(s *Session) {
	s.introduce("GoHopeless", "go-hopeless")
	sent := numbered("GoHopeless", 2)
	s.sendAll(s.producer(), sent)
	inbox := s.subscribe(Subscription{
		topic:   "GoHopeless",
		group:   "go-hopeless",
		options: []consumer.Option{consumer.WithMaxReconsumeTimes(1)},
		decide: func(*primitive.MessageExt) consumer.ConsumeResult {
			return consumer.ConsumeRetryLater
		},
	})
	var times []int32
	for _, message := range inbox.waitExactly(4) {
		times = append(times, message.ReconsumeTimes)
	}
	expect("times", times, []int32{0, 0, 1, 1})
}
