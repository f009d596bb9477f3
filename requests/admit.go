package requests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgerr"
)

// Intake admits requests in groups. While one group's transaction commits, the next one gathers; nobody waits on a timer,
// and a lone request is a group of one.
type Intake struct {
	db     *pgxpool.Pool
	ringer Ringer
	chime  *chime
	config IntakeConfig

	lines   map[string]*line // by lane, so that nobody waits behind a hot variant's crowd who wants another
	refused *line            // of those whose key may be known
	backlog *backlog
	aside   *aside
	notes   *notes
}

// NewIntake makes an intake; Run makes it work.
func NewIntake(db *pgxpool.Pool, ringer Ringer, config IntakeConfig) (*Intake, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Intake{
		db: db, ringer: ringer, chime: newChime(ringer), config: config,
		lines: map[string]*line{Hot: newLine(config.LineMax), Normal: newLine(config.LineMax)}, refused: newLine(recallMax), backlog: newBacklog(db, config), aside: newAside(), notes: newNotes(),
	}, nil
}

// Submit admits one request and returns it as stored: queued, or done at once for an untracked variant. When the
// idempotency key was used before for the same call it returns that first request as it is now.
//
// Errors: *inventory.InvalidError, *RefusedError, ErrKeyReused. With any other error (and when ctx ends first) it is
// unknown whether the request was admitted; calling again with the same key is safe.
func (in *Intake) Submit(ctx context.Context, s Submission) (Request, error) {
	if err := s.prepare(); err != nil {
		return Request{}, err
	}
	return in.submit(ctx, newMember(ctx, s))
}

// submit has m admitted and waits for that.
func (in *Intake) submit(ctx context.Context, m *member) (Request, error) {
	refused := in.aside.check(m)
	if refused == nil {
		refused = in.backlog.enter(m)
	}
	if refused == nil {
		if refused = in.lines[m.lane].join(m); refused != nil {
			in.backlog.leave(m, Request{}, false)
		}
	}
	if refused != nil {
		return in.refuse(ctx, m, refused)
	}
	select {
	case <-m.answered:
		return m.request, m.err
	case <-ctx.Done():
		return Request{}, ctx.Err()
	}
}

// Run commits groups until ctx ends, then closes the line, commits what stands in it, rings and returns.
func (in *Intake) Run(ctx context.Context) error {
	work := context.WithoutCancel(ctx)
	var working sync.WaitGroup
	for _, line := range in.lines {
		for range in.config.Committers {
			working.Go(func() {
				for group := line.take(in.config.GroupMax); len(group) > 0; group = line.take(in.config.GroupMax) {
					in.commit(work, in.present(group), in.setAside)
				}
			})
		}
	}
	working.Go(func() { in.recall(work) })
	working.Go(func() { in.backlog.run(ctx) })
	ended := make(chan struct{})
	var ringing sync.WaitGroup
	ringing.Go(func() { in.chime.run(work, ended) })
	<-ctx.Done()
	for _, line := range in.lines {
		line.close()
	}
	in.refused.close()
	working.Wait()
	in.aside.running.Wait()
	close(ended)
	ringing.Wait()
	return nil
}

// answer tells m what came of it, and counts it out.
func (in *Intake) answer(m *member, r Request, err error) {
	in.backlog.leave(m, r, err == nil)
	m.answer(r, err)
}

// commit admits the group in one transaction. A group that fails on data is split until only the bad one fails. A commit
// whose fate is unknown is repeated: the same ids conflict with themselves, wait for the first attempt to end, and are
// read back; where that fails too it stays unknown. What waits for a lock too long goes to locked, unless it is alone.
func (in *Intake) commit(ctx context.Context, group []*member, locked func(context.Context, []*member)) {
	if len(group) == 0 {
		return
	}
	var admitted map[Ref]admission
	var err error
	for range 3 {
		admitted, err = in.admit(ctx, group)
		err = remember(group, err)
		if err == nil || isLocked(err) || !pgerr.IsRetryable(err) && !pgerr.IsOutage(err) {
			break
		}
	}
	var foreign *foreignError
	var blocked *blockedError
	switch {
	case err == nil:
		for _, m := range group {
			a := admitted[Ref{m.submission.TenantID, m.submission.RequestID}]
			in.answer(m, a.request, a.err)
		}
	case errors.As(err, &blocked):
		in.leaveOut(ctx, group, blocked, locked)
	case errors.As(err, &foreign):
		in.commit(ctx, slices.DeleteFunc(group, func(m *member) bool {
			used := foreign.keys[keyRef{m.submission.TenantID, m.submission.IdempotencyKey}]
			if used {
				in.answer(m, Request{}, ErrKeyReused)
			}
			return used
		}), locked)
	case len(group) > 1 && pgerr.IsData(err):
		in.commit(ctx, group[:len(group)/2], locked)
		in.commit(ctx, group[len(group)/2:], locked)
	case len(group) > 1 && isLocked(err):
		locked(ctx, group)
	case isLocked(err):
		in.answer(group[0], Request{}, in.aside.hold(group[0], err))
	default:
		for _, m := range group {
			in.answer(m, Request{}, fmt.Errorf("admit request %s: %w", m.submission.RequestID, err))
		}
	}
}

// admit admits the group in one round trip and has the slots that got work rung. Where a key of the group belongs to a
// call that finishes at once, it admits nobody and says whose key it is.
func (in *Intake) admit(ctx context.Context, group []*member) (admitted map[Ref]admission, err error) {
	ctx, cancel := context.WithTimeout(ctx, in.config.CommitTimeout)
	defer cancel()
	submissions := make([]Submission, len(group))
	for i, m := range group {
		submissions[i] = m.submission
	}
	if in.config.Metered {
		return in.admitMetered(ctx, group, submissions)
	}
	admitted, wakes, err := admitAtOnce(ctx, in.db, submissions)
	if foundForeign(err) {
		err = pgx.BeginFunc(ctx, in.db, func(tx pgx.Tx) (err error) {
			admitted, err = admitTx(ctx, tx, in.ringer, submissions)
			return err
		})
	}
	if err == nil {
		in.announce(wakes, submissions)
	}
	return admitted, err
}
