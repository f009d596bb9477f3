package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/groupcommit"
)

// member is a call whose result is a number.
type member struct {
	groupcommit.Call[int]
	n int
}

func newMember(ctx context.Context, n int) *member {
	m := &member{n: n}
	m.Begin(ctx)
	return m
}

func numbers(group []*member) []int {
	ns := make([]int, len(group))
	for i, m := range group {
		ns[i] = m.n
	}
	return ns
}

func answer(group []*member) {
	for _, m := range groupcommit.Present(group, func(*member) {}) {
		m.Answer(m.n, nil)
	}
}

// Run commits everything that is queued when its context ends, and the members
// that the last groups have queued in a queue that is closed last.
func TestRunCommitsWhatIsQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := groupcommit.New[*member](2, time.Second)
		last := e.Queue(groupcommit.QueueConfig[*member]{
			Limit: 10, Committers: 1, Commit: func(_ context.Context, group []*member) { answer(group) }, Serial: true, Last: true,
		})
		first := e.Queue(groupcommit.QueueConfig[*member]{
			Limit: 10, Committers: 1, Commit: func(_ context.Context, group []*member) {
				for _, m := range group {
					m.Send()
					m.Requeue()
					last.Join(uuid.Nil, m)
				}
			},
		})
		members := make([]*member, 5)
		for i := range members {
			members[i] = newMember(t.Context(), i)
			first.Join(uuid.Nil, members[i])
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		e.Run(ctx)
		for i, m := range members {
			if n, err := m.Wait(); n != i || err != nil {
				t.Errorf("member %d returned %d, %v", i, n, err)
			}
		}
		if first.Join(uuid.Nil, newMember(t.Context(), 0)) != groupcommit.Closed || last.Join(uuid.Nil, newMember(t.Context(), 0)) != groupcommit.Closed {
			t.Error("a queue is open")
		}
	})
}

// Run cancels a group that is not committed within the stop timeout.
func TestRunCancels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := groupcommit.New[*member](2, time.Minute)
		began := time.Now()
		q := e.Queue(groupcommit.QueueConfig[*member]{Limit: 1, Committers: 1, Commit: func(ctx context.Context, _ []*member) { <-ctx.Done() }})
		q.Join(uuid.Nil, newMember(t.Context(), 0))
		ctx, stop := context.WithCancel(t.Context())
		stop()
		e.Run(ctx)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("Run ended after %s of the bubble's clock", took)
		}
	})
}

// One commit of a queue that stalls delays the next group by half a second. A
// serial queue waits for it.
func TestStalledCommit(t *testing.T) {
	t.Parallel()
	for _, serial := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := groupcommit.New[*member](1, time.Hour)
			release := make(chan struct{})
			q := e.Queue(groupcommit.QueueConfig[*member]{Limit: 10, Committers: 1, Serial: serial, Commit: func(_ context.Context, group []*member) {
				if group[0].n < 2 {
					<-release
				}
				answer(group)
			}})
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { e.Run(ctx) })
			join := func(n int) *member {
				m := newMember(t.Context(), n)
				q.Join(uuid.Nil, m)
				return m
			}
			join(0)
			behind := join(2)
			<-time.After(time.Second)
			synctest.Wait()
			if behind.Answered() == serial {
				t.Errorf("serial %t: the group behind a stalled one is committed: %t", serial, behind.Answered())
			}
			join(1) // a second one stalls, and the queue waits
			waiting := join(3)
			<-time.After(time.Minute)
			synctest.Wait()
			if waiting.Answered() {
				t.Errorf("serial %t: two stalled commits do not stop the queue", serial)
			}
			close(release)
			if n, err := waiting.Wait(); n != 3 || err != nil {
				t.Errorf("returned %d, %v", n, err)
			}
			stop()
			running.Wait()
		})
	}
}

// A caller whose context ends leaves the queue, or does not know the outcome.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	queued, sent, again := newMember(ctx, 1), newMember(ctx, 2), newMember(ctx, 3)
	if !sent.Send() || !again.Send() {
		t.Fatal("the callers have left")
	}
	again.Requeue()
	cancel()
	for m, want := range map[*member]error{queued: groupcommit.ErrLeft, sent: groupcommit.ErrSent, again: groupcommit.ErrLeft} {
		if _, err := m.Wait(); !errors.Is(err, want) || !errors.Is(err, context.Canceled) {
			t.Errorf("member %d: %v, want %v", m.n, err, want)
		}
	}
	if queued.Send() || again.Send() || !sent.Send() {
		t.Error("a call whose caller has left was sent")
	}
}

// The parts of a group that is split are committed in the order of their
// members.
func TestSplit(t *testing.T) {
	t.Parallel()
	var order []int
	groupcommit.Split([]int{1, 2, 3, 4, 5}, func(part []int) [][]int {
		if len(part) > 1 {
			return groupcommit.Halves(part)
		}
		order = append(order, part...)
		return nil
	})
	if !slices.IsSorted(order) || len(order) != 5 {
		t.Errorf("committed %v", order)
	}
}

// A bisection ends with the member that waits for a lock alone. Run waits for
// it.
func TestBisect(t *testing.T) {
	t.Parallel()
	e := groupcommit.New[*member](100, time.Minute)
	var mu sync.Mutex
	var alone, committed []int
	commit := func(_ context.Context, part []*member) (waiting [][]*member) {
		mu.Lock()
		defer mu.Unlock()
		blocked := slices.ContainsFunc(part, func(m *member) bool { return m.n == 7 || m.n == 31 })
		switch {
		case !blocked:
			committed = append(committed, numbers(part)...)
		case len(part) == 1:
			alone = append(alone, part[0].n)
		default:
			return [][]*member{part}
		}
		return nil
	}
	for from := range 2 { // the second group is bisected while the first one is, or after it
		group := make([]*member, 32)
		for i := range group {
			group[i] = newMember(t.Context(), 32*from+i)
		}
		e.Bisect(t.Context(), time.Minute, group, commit)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	e.Run(ctx)
	slices.Sort(alone)
	if fmt.Sprint(alone) != "[7 31]" || len(committed) != 62 {
		t.Errorf("alone are %v, %d were committed", alone, len(committed))
	}
}
