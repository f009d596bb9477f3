package requests

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/fair"
	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Intake admits requests in groups. While one group's transaction commits, the next one gathers; nobody waits on a timer,
// and a lone request is a group of one. A commit that takes unusually long keeps its own group waiting, and the next one for
// a moment, but not those behind it.
type Intake struct {
	db     *pgxpool.Pool
	ringer Ringer
	chime  *chime
	config IntakeConfig

	lines   map[string]*fair.Line[*member] // by lane, so that nobody waits behind a hot variant's crowd who wants another
	refused *fair.Line[*member]            // of those whose key may be known
	shedder *shedder
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
		lines:   map[string]*fair.Line[*member]{Hot: fair.NewLine[*member](config.LineMax), Normal: fair.NewLine[*member](config.LineMax)},
		refused: fair.NewLine[*member](recallMax), shedder: newShedder(config), aside: newAside(), notes: newNotes(),
	}, nil
}

// Submit admits one request and returns it as stored: queued, or done at once for an untracked variant. When the
// idempotency key was used before for the same call it returns that first request as it is now.
//
// Errors: *inventory.InvalidError, *RefusedError, ErrKeyReused. If ctx ends first it is ctx's error; where the request may
// have been admitted it is ErrOutcomeUnknown too, and where its deadline passed before its turn came it is a *RefusedError.
// With any other error it is unknown whether the request was admitted; calling again with the same key is safe.
func (in *Intake) Submit(ctx context.Context, s Submission) (Request, error) {
	if err := s.prepare(ctx); err != nil {
		return Request{}, err
	}
	v, err := in.submit(ctx, newMember(ctx, s))
	return v.Request, err
}

// submit has m admitted and waits for that.
func (in *Intake) submit(ctx context.Context, m *member) (View, error) {
	if refused := in.enter(m); refused != nil {
		return in.refuse(ctx, m, refused)
	}
	select {
	case <-m.answered:
		return m.view, m.err
	case <-ctx.Done():
		return View{}, in.leave(ctx, m)
	}
}

// attemptsMax is how often a group's transaction is tried.
const attemptsMax = 3

// commit admits the group, and what it is split into, within CommitTimeout. A part that waits too long for a row with the
// key of one of its members goes to locked, unless it is one member.
func (in *Intake) commit(ctx context.Context, group []*member, locked func(context.Context, []*member)) {
	ctx, cancel := context.WithTimeout(ctx, in.config.CommitTimeout)
	defer cancel()
	for parts := [][]*member{group}; len(parts) > 0; {
		parts = append(in.commitPart(ctx, parts[0], locked), parts[1:]...)
	}
}

// commitPart admits a part of a group in one transaction, or returns what it is split into: a part that fails on data is
// halved, until only the bad member fails. A commit whose fate is unknown is repeated: the same ids conflict with
// themselves, wait for the first attempt to end, and are read back; where that fails too it stays unknown.
func (in *Intake) commitPart(ctx context.Context, group []*member, locked func(context.Context, []*member)) (parts [][]*member) {
	var admitted map[Ref]admission
	var blocked *blockedError
	var err error
	for try := 1; ; try++ {
		if group, admitted, err = in.admit(ctx, group, try == 1); len(group) == 0 {
			return nil
		}
		waits := pgerr.IsLockTimeout(err) && group[0].unknown != nil // for an earlier attempt that has not ended
		err = remember(group, err)
		repeat := try == 1 && in.isHopeful(group) || pgerr.IsRetryable(err) || pgerr.IsOutage(err)
		if err == nil || isKeyLocked(err) || errors.As(err, &blocked) || !repeat || ctx.Err() != nil || try >= attemptsMax && !waits {
			break
		}
		if waits {
			_ = pause(ctx, ownLockWait) // or ctx ends
		}
	}
	switch {
	case err == nil:
		observe(ctx, group, admitted)
		for _, m := range group {
			a := admitted[Ref{m.submission.TenantID, m.submission.RequestID}]
			in.answer(m, a.view, a.err)
		}
	case blocked != nil:
		return in.leaveOut(ctx, group, blocked)
	case len(group) > 1 && pgerr.IsData(err):
		return [][]*member{group[:len(group)/2], group[len(group)/2:]}
	case len(group) > 1 && isKeyLocked(err):
		locked(ctx, group)
	default:
		for _, m := range group {
			in.answer(m, View{}, in.aside.failure(m, err))
		}
	}
	return nil
}

// admit admits those of the group whose callers are present, whom it returns, in one round trip, and has the slots that got
// work rung.
func (in *Intake) admit(ctx context.Context, group []*member, first bool) (present []*member, admitted map[Ref]admission, err error) {
	ctx, done := telemetry.Verb(ctx, "requests.admit")
	defer func() { done("", err) }()
	ctx, cancel := context.WithTimeout(ctx, in.config.AttemptTimeout)
	defer cancel()
	conn, err := in.db.Acquire(ctx)
	if err != nil {
		return group, nil, &unsentError{err}
	}
	defer conn.Release()
	if group = in.present(group); len(group) == 0 {
		return nil, nil, nil
	}
	submissions := submissionsOf(group)
	if in.config.Metered {
		admitted, err = in.admitMetered(ctx, conn, group, submissions)
		return group, admitted, err
	}
	e := newEntry(submissions)
	if first && !e.keyed {
		e.sql = admitNewSQL
	}
	var wakes []Wake
	if first && in.decidesDirectly(group) {
		admitted, wakes, err = in.admitDirectly(ctx, conn, group[0].lane, e)
	} else {
		admitted, wakes, err = e.admitAtOnce(ctx, conn)
	}
	if err == nil {
		in.announce(wakes, submissions)
	}
	return group, admitted, err
}
