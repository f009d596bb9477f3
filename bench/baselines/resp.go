package baselines

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// number sends a command and reads an integer.
func (c *RedisClient) number(command ...string) (int64, error) {
	kind, text, err := c.do(command)
	if err == nil && kind != ':' {
		err = fmt.Errorf("%s: want a number, got %q", command[0], text)
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// text sends a command and reads a string.
func (c *RedisClient) text(command ...string) (string, error) {
	kind, text, err := c.do(command)
	if err == nil && kind != '+' && kind != '$' {
		err = fmt.Errorf("%s: want a string, got %q", command[0], text)
	}
	return text, err
}

// do speaks as much of Redis's protocol (RESP2) as this package needs: an array of strings out; a number, a line, a string
// or an error in.
func (c *RedisClient) do(command []string) (kind byte, text string, err error) {
	c.out = append(strconv.AppendInt(append(c.out[:0], '*'), int64(len(command)), 10), "\r\n"...)
	for _, word := range command {
		c.out = append(strconv.AppendInt(append(c.out, '$'), int64(len(word)), 10), "\r\n"...)
		c.out = append(append(c.out, word...), "\r\n"...)
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, "", err
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return 0, "", err
	}
	kind, text = line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '-':
		return kind, "", errors.New("redis: " + text)
	case '$':
		length, err := strconv.Atoi(text)
		if err != nil || length < 0 {
			return kind, "", fmt.Errorf("redis: no string: %q", text)
		}
		body := make([]byte, length+2)
		if _, err := io.ReadFull(c.in, body); err != nil {
			return kind, "", err
		}
		text = string(body[:length])
	}
	return kind, text, nil
}
