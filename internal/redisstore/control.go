package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/store"
)

func (s *Store) SendCommand(ctx context.Context, c store.Command, bound time.Duration) (string, error) {
	sc := s.scripts.sendCommand
	return s.verdict(ctx, sc, append(sc.args("3", 13), s.keys.Command(c.ID), s.keys.Inbox(c.Instance), s.keys.Commands(),
		c.ID, c.Entry(), bound.Milliseconds(), s.keys.Events(), c.Instance, c.Kind, c.Role, c.Argument, c.By, c.NotAfter),
		store.CommandSent, store.CommandFull, store.CommandLate)
}

func (s *Store) ReadCommands(ctx context.Context, instance string, remove []string) ([]string, error) {
	sc := s.scripts.readCommands
	return s.texts(ctx, sc, withTexts(append(sc.args("1", 1+len(remove)), s.keys.Inbox(instance)), remove))
}

func (s *Store) StartCommand(ctx context.Context, c store.Command, entry, incarnation string) (string, error) {
	sc := s.scripts.startCommand
	return s.verdict(ctx, sc, append(sc.args("3", 8), s.keys.Command(c.ID), s.keys.Inbox(c.Instance), s.keys.Commands(),
		c.ID, entry, c.Instance, incarnation, c.Lasts.Milliseconds()), store.CommandStarted, store.CommandOverdue, store.CommandLate, store.CommandGone)
}

func (s *Store) EndCommand(ctx context.Context, c store.Command, incarnation string, o store.CommandOutcome) error {
	sc := s.scripts.endCommand
	_, err := s.verdict(ctx, sc, append(sc.args("2", 8), s.keys.Command(c.ID), s.keys.Commands(), c.ID, incarnation, o.State, o.Code,
		store.CommandText(o.Text), c.Instance), "ok", "gone")
	return err
}

func (s *Store) LookCommand(ctx context.Context, c store.Command, hint bool) (store.CommandOutcome, error) {
	sc := s.scripts.lookCommand
	reply, err := s.texts(ctx, sc, append(sc.args("2", 6), s.keys.Command(c.ID), s.keys.Commands(), c.ID, flag(hint), s.keys.Events(), c.Instance))
	if err != nil {
		return store.CommandOutcome{}, err
	}
	if len(reply) != 3 {
		return store.CommandOutcome{}, malformedReply(reply)
	}
	return store.CommandOutcome{State: reply[0], Code: reply[1], Text: store.CommandText(reply[2])}, nil
}

func (s *Store) NoteCommand(ctx context.Context, c store.Command, o store.CommandOutcome) error {
	sc := s.scripts.noteCommand
	_, err := s.verdict(ctx, sc, append(sc.args("2", 11), s.keys.Command(c.ID), s.keys.Commands(), c.ID, c.Kind, c.Instance, c.Argument, c.By,
		o.State, o.Code, store.CommandText(o.Text), c.Role), "ok")
	return err
}

func (s *Store) CommandLog(ctx context.Context) ([]store.CommandEntry, error) {
	cmd := redis.NewXMessageSliceCmd(ctx, "xrevrange", s.keys.Commands(), "+", "-", "count", store.MaxCommandLog)
	if err := s.read(ctx, s.keys.Commands(), cmd); err != nil {
		return nil, s.explain("XREVRANGE", err)
	}
	entries := make([]store.CommandEntry, 0, len(cmd.Val()))
	for _, message := range cmd.Val() {
		text := func(field string) string {
			value, _ := message.Values[field].(string)
			return store.CommandText(value)
		}
		entries = append(entries, store.CommandEntry{
			At: messageTime(message.ID), Event: text("event"), Taker: text("taker"),
			Command: store.Command{
				ID: text("command"), Instance: text("instance"), Kind: text("kind"), Role: text("role"), Argument: text("argument"), By: text("by"),
			},
			CommandOutcome: store.CommandOutcome{State: text("state"), Code: text("code"), Text: text("text")},
		})
	}
	return entries, nil
}

// verdict runs a script that replies with one of these words.
func (s *Store) verdict(ctx context.Context, sc *script, args []any, words ...string) (string, error) {
	reply, err := s.text(ctx, sc, args)
	if err != nil {
		return "", err
	}
	for _, word := range words {
		if reply == word {
			return word, nil
		}
	}
	return "", malformedReply(reply)
}
