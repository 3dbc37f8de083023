package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	receiveTimeout = 30 * time.Second
	// How long a message that must not come is waited for.
	quietTime = 500 * time.Millisecond
)

// A Session knows the servers, and ends what a case has started.
type Session struct {
	nameserver string
	broker     string

	mutex   sync.Mutex
	names   int
	closers []func() error
}

// closeAll ends the clients of a case, the last one first.
func (s *Session) closeAll() {
	s.mutex.Lock()
	closers := s.closers
	s.closers = nil
	s.mutex.Unlock()
	for i := len(closers) - 1; i >= 0; i-- {
		// A client that cannot say goodbye is no failure of the case.
		_ = closers[i]()
	}
}

func (s *Session) closeLater(closer func() error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.closers = append(s.closers, closer)
}

// unique returns a name that no other client has: clients of one name share connections.
func (s *Session) unique(kind string) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.names++
	return fmt.Sprintf("%s-%d", kind, s.names)
}

func (s *Session) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{s.nameserver})
}

// --- producers -----------------------------------------------------------------------------------

func (s *Session) producer(options ...producer.Option) rocketmq.Producer {
	options = append([]producer.Option{
		producer.WithNsResolver(s.resolver()),
		producer.WithGroupName("go-producers"),
		producer.WithInstanceName(s.unique("producer")),
		producer.WithRetry(0),
	}, options...)
	started, err := rocketmq.NewProducer(options...)
	must("new producer", err)
	must("start of a producer", started.Start())
	s.closeLater(started.Shutdown)
	return started
}

// sendAll sends messages one by one.
func (s *Session) sendAll(to rocketmq.Producer, messages []outgoing) []*primitive.SendResult {
	var results []*primitive.SendResult
	for _, message := range messages {
		result, err := to.SendSync(context.Background(), message.message())
		must("send", err)
		expect("status", result.Status, primitive.SendOK)
		results = append(results, result)
	}
	return results
}

// --- push consumers ------------------------------------------------------------------------------

// A Subscription is what a push consumer is started with.
type Subscription struct {
	topic    string
	group    string
	selector consumer.MessageSelector
	options  []consumer.Option
	// decide says what becomes of a message; nothing means success.
	decide func(*primitive.MessageExt) consumer.ConsumeResult
}

// An Inbox keeps what a push consumer was given.
type Inbox struct {
	client   rocketmq.PushConsumer
	mutex    sync.Mutex
	messages []*primitive.MessageExt
	arrivals []time.Time
	changed  chan struct{}
}

func (s *Session) subscribe(subscription Subscription) *Inbox {
	group := subscription.group
	if group == "" {
		group = s.unique("go-group")
	}
	options := append([]consumer.Option{
		consumer.WithNsResolver(s.resolver()),
		consumer.WithGroupName(group),
		consumer.WithInstance(s.unique("consumer")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, subscription.options...)
	client, err := rocketmq.NewPushConsumer(options...)
	must("new consumer", err)
	inbox := &Inbox{client: client, changed: make(chan struct{}, 1)}
	must("subscribe", client.Subscribe(subscription.topic, subscription.selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			return inbox.take(messages, subscription.decide), nil
		}))
	must("start of a consumer", client.Start())
	s.closeLater(client.Shutdown)
	return inbox
}

func (i *Inbox) take(
	messages []*primitive.MessageExt, decide func(*primitive.MessageExt) consumer.ConsumeResult,
) consumer.ConsumeResult {
	result := consumer.ConsumeSuccess
	i.mutex.Lock()
	defer i.mutex.Unlock()
	for _, message := range messages {
		i.messages = append(i.messages, message)
		i.arrivals = append(i.arrivals, time.Now())
		if decide != nil {
			result = decide(message)
		}
	}
	select {
	case i.changed <- struct{}{}:
	default:
	}
	return result
}

func (i *Inbox) received() []*primitive.MessageExt {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return append([]*primitive.MessageExt(nil), i.messages...)
}

// wait returns what has come as soon as there are that many messages.
func (i *Inbox) wait(count int) []*primitive.MessageExt {
	deadline := time.After(receiveTimeout)
	for {
		if messages := i.received(); len(messages) >= count {
			return messages
		}
		select {
		case <-i.changed:
		case <-deadline:
			fail("%d of %d messages came within %v", len(i.received()), count, receiveTimeout)
		}
	}
}

// waitExactly also sees to it that there are no more of them.
func (i *Inbox) waitExactly(count int) []*primitive.MessageExt {
	i.wait(count)
	time.Sleep(quietTime)
	return i.received()
}

// readAll returns the messages of a topic, each queue in its order.
func (s *Session) readAll(topic string, count int) []*primitive.MessageExt {
	messages := s.subscribe(Subscription{topic: topic}).waitExactly(count)
	// A consumer that need not be orderly is given several at once.
	sort.SliceStable(messages, func(i, j int) bool {
		one, other := messages[i], messages[j]
		if one.Queue.QueueId != other.Queue.QueueId {
			return one.Queue.QueueId < other.Queue.QueueId
		}
		return one.QueueOffset < other.QueueOffset
	})
	return messages
}
