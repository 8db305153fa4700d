package virtual

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fault of the world: it begins when called, and lasts until heal is. heal may
// be nil: some are over at once.
type fault struct {
	name   string
	weight int
	begin  func(w *world) (heal func())
	// lasts for up to that long.
	lasts time.Duration
}

var faults = []fault{
	{"kill -9", 6, killed, 30 * time.Second},
	{"power cut", 3, vanished, 30 * time.Second},
	{"paused", 4, paused, 70 * time.Second},
	{"SIGTERM", 3, terminated, 10 * time.Second},
	{"connections reset", 4, connectionsReset, 0},
	{"connections half open", 4, halfOpen, 20 * time.Second},
	{"PostgreSQL out of reach", 2, outOfReach(pgAddress), 3 * time.Minute},
	{"Kafka out of reach", 3, outOfReach(brokerAddresses...), time.Minute},
	{"PostgreSQL stalls", 2, stalled, 2 * time.Minute},
	{"PostgreSQL crashes", 4, crashed, 20 * time.Second},
	{"PostgreSQL is stopped", 2, stoppedServer, 10 * time.Second},
	{"PostgreSQL's answer lost", 2, statementCutOff, 0},
	{"requests refused", 6, requestsRefused, 10 * time.Second},
	{"answers lost", 4, answersLost, 5 * time.Second},
	{"leaders move", 2, leadersMove, 0},
	{"a broker is down", 3, brokerDown, 40 * time.Second},
	{"all brokers are down", 2, brokersDown, time.Minute},
	{"an hour of outage", 1, hourOfOutage, 0},
}

// fault chooses one, and lives through it, or through its beginning only.
func (w *world) fault() {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	n := w.rng.IntN(total)
	i := 0
	for ; n >= faults[i].weight; i++ {
		n -= faults[i].weight
	}
	f := faults[i]
	w.counts.Faults++
	w.tell("FAULT: %s", f.name)
	heal := f.begin(w)
	if heal == nil {
		return
	}
	var lasts time.Duration
	if f.lasts > 0 {
		lasts = w.upTo(pick(w.rng, f.lasts, f.lasts/10))
	}
	if w.rng.IntN(5) < 2 { // the next one may come on top of it
		w.healing.Go(func() {
			time.Sleep(lasts)
			heal()
			w.tell("over: %s", f.name)
		})
		return
	}
	time.Sleep(lasts)
	heal()
	w.tell("over, after %s: %s", lasts, f.name)
}

// someone is an instance that runs; nil when none does.
func (w *world) someone() *instance {
	running := w.running()
	if len(running) == 0 {
		return nil
	}
	return pick(w.rng, running...)
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

func nothing() {}

// killed: the kernel hangs up for it. The next one is started when it is over.
func killed(w *world) func() {
	if i := w.someone(); i != nil {
		w.tell("%s is killed", i.name)
		w.abandon(i)
		i.host.Kill()
	}
	return nothing
}

func vanished(w *world) func() {
	if i := w.someone(); i != nil {
		w.tell("%s is gone without a word", i.name)
		w.abandon(i)
		i.host.Vanish()
	}
	return nothing
}

// paused: what it has written before arrives when it wakes up.
func paused(w *world) func() {
	i := w.someone()
	if i == nil {
		return nil
	}
	w.tell("%s is paused", i.name)
	i.host.Freeze()
	return i.host.Thaw
}

func terminated(w *world) func() {
	i := w.someone()
	if i == nil {
		return nil
	}
	w.tell("%s is asked to stop", i.name)
	w.stop(i)
	return func() { <-i.ended }
}

// some links of instances to an address; all, or each with even odds.
func (w *world) some(addresses ...string) func(*Link) bool {
	all := w.rng.IntN(2) == 0
	return func(l *Link) bool {
		return slices.Contains(addresses, l.Address) && (all || w.rng.IntN(2) == 0)
	}
}

func (w *world) eitherSide() []string {
	if w.rng.IntN(2) == 0 {
		return []string{pgAddress}
	}
	return brokerAddresses
}

func connectionsReset(w *world) func() {
	side := w.eitherSide()
	n := w.network.Each(w.some(side...), (*Link).Reset)
	w.tell("%d connections to %v are reset", n, side)
	return nil
}

// halfOpen: one end believes that the connection is there.
func halfOpen(w *world) func() {
	side, cut, who := w.eitherSide(), (*Link).ResetHere, "walstream's"
	if w.rng.IntN(2) == 0 {
		cut, who = (*Link).ResetThere, "the server's"
	}
	n := w.network.Each(w.some(side...), cut)
	w.tell("%d connections to %v are gone at %s end only", n, side, who)
	return nothing
}

// outOfReach: what is sent to or by these addresses arrives when it is over.
func outOfReach(addresses ...string) func(w *world) func() {
	return func(w *world) func() {
		to := func(l *Link) bool { return slices.Contains(addresses, l.Address) }
		w.network.Hold(addresses...)
		w.network.Each(to, (*Link).Hold)
		return func() {
			w.network.LetGo(addresses...)
			w.network.Each(to, (*Link).Release)
		}
	}
}

func stalled(w *world) func() {
	d := w.upTo(2 * time.Minute)
	w.tell("its walsenders do nothing for %s", d)
	w.postgres.Stall(d)
	return nothing
}

func crashed(w *world) func() {
	w.postgres.Crash()
	return func() {
		w.postgres.Recover()
		time.Sleep(time.Second)
		w.postgres.Start()
	}
}

// statementCutOff: it is carried out, and nobody is told.
func statementCutOff(w *world) func() {
	statement := pick(w.rng, "SELECT", "SELECT", "CREATE", "SET", "SHOW")
	w.tell("the answer to the next %s is lost", statement)
	w.postgres.LoseAnswer(statement)
	return nil
}

// stoppedServer: a fast shutdown. It may take as long as the clients like.
func stoppedServer(w *world) func() {
	stopped := make(chan struct{})
	began := time.Now()
	w.healing.Go(func() {
		defer close(stopped)
		w.postgres.Stop()
		took := time.Since(began)
		w.tell("PostgreSQL has stopped after %s", took)
		w.counts.SlowestStop = max(w.counts.SlowestStop, took)
	})
	return func() {
		<-stopped
		w.postgres.Start()
	}
}

// refusals that a broker may answer a request with, for a while. Refusals of
// single records are another matter: they are tested in package sink.
var refusals = []struct {
	keys   []kmsg.Key
	errors []*kerr.Error
}{
	{[]kmsg.Key{kmsg.Produce}, []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.KafkaStorageError, kerr.UnknownTopicOrPartition, kerr.CoordinatorLoadInProgress, kerr.ConcurrentTransactions,
	}},
	{[]kmsg.Key{kmsg.EndTxn}, []*kerr.Error{
		kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.ConcurrentTransactions,
		kerr.RequestTimedOut, kerr.UnknownServerError, kerr.InvalidTxnState, kerr.InvalidProducerEpoch,
	}},
	{[]kmsg.Key{kmsg.InitProducerID, kmsg.FindCoordinator}, []*kerr.Error{
		kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.ConcurrentTransactions, kerr.RequestTimedOut,
	}},
	{[]kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.KafkaStorageError, kerr.UnknownLeaderEpoch, kerr.ReplicaNotAvailable,
	}},
	{[]kmsg.Key{kmsg.Metadata}, []*kerr.Error{kerr.LeaderNotAvailable}},
}

func requestsRefused(w *world) func() {
	kind := pick(w.rng, append(refusals, refusals[1])...) // commits are where it matters most
	f := kfake.Fault{Keys: []kmsg.Key{pick(w.rng, kind.keys...)}, Err: pick(w.rng, kind.errors...), Count: pick(w.rng, 1, 1, 3, 20, -1)}
	w.tell("%s is answered with %s, %d times", f.Keys[0].Name(), f.Err.Message, f.Count)
	return w.kafka.Fault(f).Remove
}

// answersLost: a request arrives and is carried out, and its answer does not
// come: the connections break in between.
func answersLost(w *world) func() {
	key := pick(w.rng, kmsg.Produce, kmsg.EndTxn, kmsg.EndTxn, kmsg.InitProducerID, kmsg.Fetch)
	left := pick(w.rng, 1, 1, 2, 5)
	w.tell("the next %d answers to %s are lost", left, key.Name())
	handle := w.kafka.Fault(kfake.Fault{
		Keys: []kmsg.Key{key}, Count: -1, Observe: true,
		When: func(kmsg.Request) bool {
			if left > 0 {
				left--
				w.network.Each(func(l *Link) bool { return l.Address != pgAddress }, (*Link).Reset)
			}
			return true
		},
	})
	return handle.Remove
}

func leadersMove(w *world) func() {
	w.kafka.ShufflePartitionLeaders()
	w.kafka.RehashCoordinators()
	return nil
}

func brokerDown(w *world) func() {
	address := pick(w.rng, brokerAddresses...)
	w.tell("%s is down", address)
	w.network.Down(address)
	return func() { w.network.Up(address) }
}

func brokersDown(w *world) func() {
	for _, address := range brokerAddresses {
		w.network.Down(address)
	}
	return func() {
		for _, address := range brokerAddresses {
			w.network.Up(address)
		}
	}
}

func hourOfOutage(w *world) func() {
	heal := brokersDown(w)
	if w.rng.IntN(2) == 0 {
		heal()
		w.postgres.Crash()
		heal = w.postgres.Start
	}
	time.Sleep(time.Hour)
	return heal
}
