package main

import (
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// A pull that is held is answered at once when a message comes, not at the end of its time.
const wakesWithin = time.Second

func pushingCases() []Case {
	return []Case{
		{"push", "clustering, what was there and what comes", map[string]int{"GoPush": 4}, pushClustering},
		{"push", "the group goes on where it has stopped", map[string]int{"GoAgain": 4}, pushAgain},
		{"push", "tags A || B", map[string]int{"GoTags": 4}, pushTags},
		{"push", "SQL92 condition on properties", map[string]int{"GoSql": 4}, pushSQL},
		{"push", "broadcasting, each gets everything", map[string]int{"GoBroadcast": 4}, pushBroadcasting},
		{"push", "orderly, each queue in its order", map[string]int{"GoOrderly": 4}, pushOrderly},
		{"push", "orderly, a message that fails holds up its queue", map[string]int{"GoStubborn": 1}, pushStubborn},
		{"push", "two consumers share the queues, the second one leaves", map[string]int{"GoShared": 4}, pushShared},
	}
}

func pushClustering(s *Session) {
	sent := numbered("GoPush", 40)
	client := s.producer()
	s.sendAll(client, sent[:20])
	inbox := s.subscribe(Subscription{topic: "GoPush"})
	inbox.wait(20)
	s.sendAll(client, sent[20:])
	expectOnce(inbox.waitExactly(40), sent)
	for i, message := range inbox.messages[20:] {
		waited := inbox.arrivals[20+i].Sub(time.UnixMilli(message.StoreTimestamp))
		if waited > wakesWithin {
			fail("a message came %v after it was stored", waited)
		}
	}
}

func pushAgain(s *Session) {
	sent := numbered("GoAgain", 25)
	client := s.producer()
	s.sendAll(client, sent[:20])
	first := s.subscribe(Subscription{topic: "GoAgain", group: "go-again"})
	expectOnce(first.waitExactly(20), sent[:20])
	must("shutdown", first.client.Shutdown())
	// The offsets are sent without waiting for an answer.
	time.Sleep(quietTime)
	s.sendAll(client, sent[20:])
	second := s.subscribe(Subscription{topic: "GoAgain", group: "go-again"})
	expectOnce(second.waitExactly(5), sent[20:])
}

func pushTags(s *Session) {
	var wanted []outgoing
	client := s.producer()
	for i, message := range numbered("GoTags", 40) {
		message.tag = []string{"TagA", "TagB", "TagC", ""}[i%4]
		s.sendAll(client, []outgoing{message})
		if i%4 < 2 {
			wanted = append(wanted, message)
		}
	}
	inbox := s.subscribe(Subscription{
		topic:    "GoTags",
		selector: consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA || TagB"},
	})
	expectOnce(inbox.waitExactly(len(wanted)), wanted)
}

func pushSQL(s *Session) {
	var wanted []outgoing
	client := s.producer()
	for i, message := range numbered("GoSql", 40) {
		message.properties["kind"] = []string{"small", "large"}[i%2]
		s.sendAll(client, []outgoing{message})
		if i >= 10 && i <= 30 && i%2 == 1 {
			wanted = append(wanted, message)
		}
	}
	inbox := s.subscribe(Subscription{
		topic: "GoSql",
		selector: consumer.MessageSelector{
			Type:       consumer.SQL92,
			Expression: "number BETWEEN 10 AND 30 AND kind = 'large'",
		},
	})
	expectOnce(inbox.waitExactly(len(wanted)), wanted)
}

func pushBroadcasting(s *Session) {
	model := []consumer.Option{consumer.WithConsumerModel(consumer.BroadCasting)}
	first := s.subscribe(Subscription{topic: "GoBroadcast", group: "go-broadcast", options: model})
	second := s.subscribe(Subscription{topic: "GoBroadcast", group: "go-broadcast", options: model})
	sent := numbered("GoBroadcast", 20)
	s.sendAll(s.producer(), sent)
	expectOnce(first.waitExactly(20), sent)
	expectOnce(second.waitExactly(20), sent)
}

func pushOrderly(s *Session) {
	sent := map[int][]outgoing{}
	client := s.producer(producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	for _, message := range numbered("GoOrderly", 80) {
		result := s.sendAll(client, []outgoing{message})[0]
		queue := result.MessageQueue.QueueId
		sent[queue] = append(sent[queue], message)
	}
	expect("number of queues", len(sent), 4)
	inbox := s.subscribe(Subscription{
		topic:   "GoOrderly",
		options: []consumer.Option{consumer.WithConsumerOrder(true)},
	})
	received := map[int][]*primitive.MessageExt{}
	for _, message := range inbox.waitExactly(80) {
		queue := message.Queue.QueueId
		received[queue] = append(received[queue], message)
	}
	for queue, messages := range sent {
		expectInOrder(received[queue], messages)
	}
}

func pushStubborn(s *Session) {
	sent := numbered("GoStubborn", 4)
	s.sendAll(s.producer(), sent)
	attempts := map[string]int{}
	inbox := s.subscribe(Subscription{
		topic: "GoStubborn",
		options: []consumer.Option{
			consumer.WithConsumerOrder(true),
			consumer.WithSuspendCurrentQueueTimeMillis(100 * time.Millisecond),
		},
		decide: func(message *primitive.MessageExt) consumer.ConsumeResult {
			attempts[string(message.Body)]++
			if attempts[string(message.Body)] == 1 {
				return consumer.SuspendCurrentQueueAMoment
			}
			return consumer.ConsumeSuccess
		},
	})
	var twice []outgoing
	for _, message := range sent {
		twice = append(twice, message, message)
	}
	expectInOrder(inbox.waitExactly(8), twice)
}

func pushShared(s *Session) {
	client := s.producer()
	total := 0
	send := func(count int) {
		s.sendAll(client, numbered("GoShared", count))
		total += count
	}
	first := s.subscribe(Subscription{topic: "GoShared", group: "go-shared"})
	send(8)
	first.wait(8)
	second := s.subscribe(Subscription{topic: "GoShared", group: "go-shared"})
	within("messages for the second consumer", func() bool {
		send(8)
		return len(second.received()) >= 8
	})
	must("shutdown", second.client.Shutdown())
	send(40)
	// What the second one had not confirmed comes again; nothing is lost.
	within("every message at one of the two", func() bool {
		seen := map[string]bool{}
		for _, message := range append(first.received(), second.received()...) {
			seen[fmt.Sprint(message.Queue.QueueId, "/", message.QueueOffset)] = true
		}
		return len(seen) == total
	})
}
