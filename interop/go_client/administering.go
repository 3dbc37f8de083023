package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
)

func adminCases() []Case {
	return []Case{
		{"admin", "create, list, look at and delete a topic", nil, administerTopic},
		{"admin", "list the subscription groups", map[string]int{"GoGroups": 1}, administerGroups},
	}
}

func (s *Session) admin() admin.Admin {
	client, err := admin.NewAdmin(admin.WithResolver(s.resolver()))
	must("new admin", err)
	s.closeLater(client.Close)
	return client
}

func administerTopic(s *Session) {
	client, ctx := s.admin(), context.Background()
	must("create", client.CreateTopic(ctx, admin.WithTopicCreate("GoAdmin"),
		admin.WithBrokerAddrCreate(s.broker), admin.WithReadQueueNums(3), admin.WithWriteQueueNums(3)))
	waitForTopic(client, "GoAdmin", true)
	queues, err := client.FetchPublishMessageQueues(ctx, "GoAdmin")
	must("queues", err)
	expect("number of queues", len(queues), 3)
	sent := numbered("GoAdmin", 6)
	s.sendAll(s.producer(), sent)
	expectOnce(s.readAll("GoAdmin", len(sent)), sent)
	must("delete", client.DeleteTopic(ctx, admin.WithTopicDelete("GoAdmin"),
		admin.WithBrokerAddrDelete(s.broker), admin.WithNameSrvAddr([]string{s.nameserver})))
	waitForTopic(client, "GoAdmin", false)
}

func waitForTopic(client admin.Admin, name string, wanted bool) {
	within(fmt.Sprintf("%s in the list of topics: %v", name, wanted), func() bool {
		list, err := client.FetchAllTopicList(context.Background())
		must("topic list", err)
		for _, topic := range list.TopicList {
			if topic == name {
				return wanted
			}
		}
		return !wanted
	})
}

func administerGroups(s *Session) {
	s.subscribe(Subscription{topic: "GoGroups", group: "go-listed"})
	client := s.admin()
	groups, err := client.GetAllSubscriptionGroup(context.Background(), s.broker, 3*time.Second)
	must("groups", err)
	if _, found := groups.SubscriptionGroupTable["go-listed"]; !found {
		fail("the group is not among the %d that were given", len(groups.SubscriptionGroupTable))
	}
}
