package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	compressedFlag = 1
	delayLevel1    = time.Second
	// How late a delayed message may be: the broker looks for due ones in intervals.
	delayTolerance = 2 * time.Second
)

func sendingCases() []Case {
	return []Case{
		{"send", "sync, with tag, keys and properties", map[string]int{"GoSync": 4}, sendSync},
		{"send", "async", map[string]int{"GoAsync": 4}, sendAsync},
		{"send", "one-way", map[string]int{"GoOneWay": 4}, sendOneWay},
		{"send", "batch of 32", map[string]int{"GoBatch": 4}, sendBatch},
		{"send", "ordered, by sharding key", map[string]int{"GoSharded": 4}, sendSharded},
		{"send", "to a queue of choice", map[string]int{"GoChosen": 4}, sendChosen},
		{"send", "compressed body (64 KiB)", map[string]int{"GoCompressed": 1}, sendCompressed},
		{"send", "body of 1 MiB", map[string]int{"GoLarge": 1}, sendLarge},
		{"send", "delayed by level 1", map[string]int{"GoDelayed": 1}, sendDelayed},
		{"send", "to a topic that is created by it", nil, sendCreating},
	}
}

func sendSync(s *Session) {
	sent := numbered("GoSync", 20)
	results := s.sendAll(s.producer(), sent)
	received := s.readAll("GoSync", len(sent))
	expectOnce(received, sent)
	byID := map[string]*primitive.MessageExt{}
	for _, message := range received {
		byID[message.MsgId] = message
	}
	for i, result := range results {
		message := byID[result.MsgID]
		if message == nil {
			fail("no message has the id %s", result.MsgID)
		}
		expectSame(message, sent[i])
		expect("offset", message.QueueOffset, result.QueueOffset)
		expect("queue", message.Queue.QueueId, result.MessageQueue.QueueId)
		expect("offset message id", message.OffsetMsgId, result.OffsetMsgID)
	}
}

func sendAsync(s *Session) {
	sent := numbered("GoAsync", 100)
	outcomes := make(chan error, len(sent))
	client := s.producer()
	for _, message := range sent {
		must("send", client.SendAsync(context.Background(),
			func(_ context.Context, result *primitive.SendResult, err error) {
				if err == nil && result.Status != primitive.SendOK {
					err = fmt.Errorf("status %v", result.Status)
				}
				outcomes <- err
			}, message.message()))
	}
	for range sent {
		must("outcome of a send", <-outcomes)
	}
	expectOnce(s.readAll("GoAsync", len(sent)), sent)
}

func sendOneWay(s *Session) {
	sent := numbered("GoOneWay", 50)
	client := s.producer()
	for _, message := range sent {
		must("send", client.SendOneWay(context.Background(), message.message()))
	}
	expectOnce(s.readAll("GoOneWay", len(sent)), sent)
}

func sendBatch(s *Session) {
	sent := numbered("GoBatch", 32)
	var messages []*primitive.Message
	for _, message := range sent {
		messages = append(messages, message.message())
	}
	result, err := s.producer().SendSync(context.Background(), messages...)
	must("send", err)
	expect("status", result.Status, primitive.SendOK)
	received := s.readAll("GoBatch", len(sent))
	expectInOrder(received, sent)
	for i, message := range received {
		expect("offset", message.QueueOffset, result.QueueOffset+int64(i))
		expect("queue", message.Queue.QueueId, result.MessageQueue.QueueId)
	}
	expect("number of offset message ids", len(strings.Split(result.OffsetMsgID, ",")), len(sent))
}

func sendSharded(s *Session) {
	client := s.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	sent := map[string][]outgoing{}
	for i, message := range numbered("GoSharded", 40) {
		message.shardKey = fmt.Sprintf("order-%d", i%8)
		sent[message.shardKey] = append(sent[message.shardKey], message)
		s.sendAll(client, []outgoing{message})
	}
	received := map[string][]*primitive.MessageExt{}
	for _, message := range s.readAll("GoSharded", 40) {
		key := message.GetShardingKey()
		received[key] = append(received[key], message)
	}
	expect("number of keys", len(received), len(sent))
	for key, messages := range received {
		for _, message := range messages {
			expect("queue of "+key, message.Queue.QueueId, messages[0].Queue.QueueId)
		}
		expectInOrder(messages, sent[key])
	}
}

func sendChosen(s *Session) {
	client := s.producer(producer.WithQueueSelector(producer.NewManualQueueSelector()))
	sent := numbered("GoChosen", 6)
	// The name of the broker is known from a first answer.
	first := s.sendAll(s.producer(), sent[:1])[0].MessageQueue
	chosen := &primitive.MessageQueue{Topic: first.Topic, BrokerName: first.BrokerName, QueueId: (first.QueueId + 1) % 4}
	for i := range sent[1:] {
		sent[i+1].queue = chosen
	}
	for i, result := range s.sendAll(client, sent[1:]) {
		expect("queue", result.MessageQueue.QueueId, chosen.QueueId)
		expect("offset", result.QueueOffset, int64(i))
	}
	var received []*primitive.MessageExt
	for _, message := range s.readAll("GoChosen", len(sent)) {
		if message.Queue.QueueId == chosen.QueueId {
			received = append(received, message)
		}
	}
	expectInOrder(received, sent[1:])
}

func sendCompressed(s *Session) {
	sent := []outgoing{{topic: "GoCompressed", body: bytes.Repeat([]byte("the same again, "), 4096)}}
	s.sendAll(s.producer(), sent)
	received := s.readAll("GoCompressed", 1)
	expectOnce(received, sent)
	expect("compressed flag", received[0].SysFlag&compressedFlag, int32(compressedFlag))
}

func sendLarge(s *Session) {
	body := make([]byte, 1<<20)
	rand.New(rand.NewSource(5)).Read(body)
	sent := []outgoing{{topic: "GoLarge", body: body}}
	s.sendAll(s.producer(producer.WithCompressMsgBodyOverHowmuch(2<<20)), sent)
	expectOnce(s.readAll("GoLarge", 1), sent)
}

func sendDelayed(s *Session) {
	inbox := s.subscribe(Subscription{topic: "GoDelayed"})
	sent := numbered("GoDelayed", 3)
	client := s.producer()
	for i := range sent {
		sent[i].delayLevel = 1
	}
	started := time.Now()
	s.sendAll(client, sent)
	finished := time.Now()
	expectOnce(inbox.waitExactly(len(sent)), sent)
	for _, arrival := range inbox.arrivals {
		if early := started.Add(delayLevel1).Sub(arrival); early > 0 {
			fail("a message came %v too early", early)
		}
		if late := arrival.Sub(finished.Add(delayLevel1)); late > delayTolerance {
			fail("a message came %v too late", late)
		}
	}
}

func sendCreating(s *Session) {
	sent := numbered("GoCreated", 8)
	s.sendAll(s.producer(), sent)
	inbox := s.subscribe(Subscription{
		topic:    "GoCreated",
		selector: consumer.MessageSelector{Type: consumer.TAG, Expression: "*"},
	})
	expectOnce(inbox.waitExactly(len(sent)), sent)
}
