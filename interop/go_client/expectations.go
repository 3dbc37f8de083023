package main

import (
	"bytes"
	"fmt"
	"reflect"
	"sort"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// A failure ends the case that it is thrown in.
type failure string

func fail(format string, arguments ...any) {
	panic(failure(fmt.Sprintf(format, arguments...)))
}

func must(what string, err error) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func expect(what string, got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		fail("%s: expected %v, got %v", what, wanted, got)
	}
}

// within asks until it is so.
func within(what string, condition func() bool) {
	deadline := time.Now().Add(receiveTimeout)
	for !condition() {
		if time.Now().After(deadline) {
			fail("expected %s within %v", what, receiveTimeout)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// An outgoing message, and what has to come out at the other end.
type outgoing struct {
	topic      string
	body       []byte
	tag        string
	keys       []string
	properties map[string]string
	delayLevel int
	shardKey   string
	queue      *primitive.MessageQueue
}

func (o outgoing) message() *primitive.Message {
	message := primitive.NewMessage(o.topic, o.body)
	if o.tag != "" {
		message.WithTag(o.tag)
	}
	if len(o.keys) > 0 {
		message.WithKeys(o.keys)
	}
	for name, value := range o.properties {
		message.WithProperty(name, value)
	}
	if o.delayLevel > 0 {
		message.WithDelayTimeLevel(o.delayLevel)
	}
	if o.shardKey != "" {
		message.WithShardingKey(o.shardKey)
	}
	message.Queue = o.queue
	return message
}

// numbered returns messages that can be told apart.
func numbered(topic string, count int) []outgoing {
	messages := make([]outgoing, count)
	for number := range messages {
		messages[number] = outgoing{
			topic:      topic,
			body:       []byte(fmt.Sprintf("%s %04d", topic, number)),
			tag:        "TagA",
			keys:       []string{fmt.Sprintf("%s-%d", topic, number), "every"},
			properties: map[string]string{"number": fmt.Sprint(number), "text": "f\u00fcr \U0001f600"},
		}
	}
	return messages
}

// expectOnce: every message has come, once, as it was sent; in any order.
func expectOnce(received []*primitive.MessageExt, sent []outgoing) {
	got := append([]*primitive.MessageExt(nil), received...)
	wanted := append([]outgoing(nil), sent...)
	sort.SliceStable(got, func(i, j int) bool { return bytes.Compare(got[i].Body, got[j].Body) < 0 })
	sort.SliceStable(wanted, func(i, j int) bool { return bytes.Compare(wanted[i].body, wanted[j].body) < 0 })
	expectInOrder(got, wanted)
}

// expectInOrder: every message has come, once, as it was sent and in that order.
func expectInOrder(received []*primitive.MessageExt, sent []outgoing) {
	var got, wanted []string
	for _, message := range received {
		got = append(got, summary(message.Body))
	}
	for _, message := range sent {
		wanted = append(wanted, summary(message.body))
	}
	expect("bodies", got, wanted)
	for i, message := range received {
		expectSame(message, sent[i])
	}
}

func expectSame(message *primitive.MessageExt, sent outgoing) {
	expect("topic", message.Topic, sent.topic)
	if !bytes.Equal(message.Body, sent.body) {
		fail("body of %d bytes differs from the %d that were sent", len(message.Body), len(sent.body))
	}
	wanted := sent.message()
	expect("tag", message.GetTags(), wanted.GetTags())
	expect("keys", message.GetKeys(), wanted.GetKeys())
	for name, value := range sent.properties {
		expect("property "+name, message.GetProperty(name), value)
	}
	if message.StoreTimestamp < message.BornTimestamp-60_000 || message.StoreTimestamp == 0 {
		fail("born at %d and stored at %d", message.BornTimestamp, message.StoreTimestamp)
	}
}

func summary(body []byte) string {
	if len(body) > 60 {
		return fmt.Sprintf("%s... (%d bytes)", body[:40], len(body))
	}
	return string(body)
}
