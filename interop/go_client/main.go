// The Go client rocketmq-client-go 2.1.2 against a nameserver and a broker.
//
//	goclient topics                    print the topics that the cases need
//	goclient run NAMESERVER BROKER     run the cases, one line of JSON for each
//
// What the lines are is written in interop/support/case_lines.py.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// A Case is one thing that is tried. It fails by calling fail.
type Case struct {
	part string
	name string
	// topics are created before the first case runs; their values are numbers of queues.
	topics map[string]int
	run    func(*Session)
}

const caseTimeout = 60 * time.Second

func cases() []Case {
	var all []Case
	for _, group := range [][]Case{sendingCases(), pushingCases(), retryCases(), pullingCases(), adminCases()} {
		all = append(all, group...)
	}
	return all
}

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "topics":
		topics := map[string]int{}
		for _, one := range cases() {
			for topic, queues := range one.topics {
				topics[topic] = queues
			}
		}
		printLine(topics)
	case len(os.Args) == 4 && os.Args[1] == "run":
		runAll(os.Args[2], os.Args[3])
	default:
		fmt.Fprintln(os.Stderr, "usage: goclient topics | goclient run NAMESERVER BROKER")
		os.Exit(2)
	}
}

func runAll(nameserver, broker string) {
	session := &Session{nameserver: nameserver, broker: broker}
	for _, one := range cases() {
		started := time.Now()
		failure := runOne(session, one)
		printLine(map[string]any{
			"part":    one.part,
			"case":    one.name,
			"ms":      time.Since(started).Milliseconds(),
			"failure": failure,
		})
	}
	printLine(map[string]any{"end": true})
}

// runOne returns what went wrong, or nothing.
func runOne(session *Session, one Case) string {
	outcome := make(chan string, 1)
	go func() {
		defer func() {
			switch reason := recover().(type) {
			case nil:
				outcome <- ""
			case failure:
				outcome <- string(reason)
			default:
				outcome <- fmt.Sprintf("panic: %v", reason)
			}
		}()
		// Producers and consumers of the case end with it, whatever became of it.
		defer session.closeAll()
		one.run(session)
	}()
	select {
	case reason := <-outcome:
		return reason
	case <-time.After(caseTimeout):
		return fmt.Sprintf("still running after %v", caseTimeout)
	}
}

func printLine(value any) {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}
