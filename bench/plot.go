package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// bar is one contender in the plot.
type bar struct {
	what      string
	perSecond float64
	ours      bool
}

// plotted adds the contenders of a comparison that have a name for the plot.
func (b *bench) plotted(c comparison, contenders []*contender) {
	for _, s := range contenders {
		if s.what != "" {
			b.bars = append(b.bars, bar{s.what, median(c[s.name].rates()), s.name == drainName})
		}
	}
}

// plottedAs adds one contender.
func (b *bench) plottedAs(c comparison, name, what string, ours bool) {
	b.bars = append(b.bars, bar{what, median(c[name].rates()), ours})
}

const (
	plotWidth  = 760
	plotLabels = 350 // where the bars begin
	plotBar    = 18
	plotRow    = 26
	plotTop    = 46
	plotFloor  = 100 // holds/s at the left edge
)

// plot draws the bars on a logarithmic scale. Its colours are readable on white
// and on black.
func plot(bars []bar) string {
	bars = slices.SortedFunc(slices.Values(bars), func(a, b bar) int { return cmp.Compare(b.perSecond, a.perSecond) })
	height := plotTop + plotRow*len(bars) + 30
	scale := float64(plotWidth-plotLabels-70) / math.Log10(100_000/plotFloor)
	x := func(v float64) float64 { return plotLabels + scale*math.Log10(max(v, plotFloor)/plotFloor) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13" role="img" aria-labelledby="t">
<title id="t">Holds per second of one hot variant</title>
<style>
  text { fill: #57606a } .ours { fill: #1a7f37 } .other { fill: #8c959f } line { stroke: #8c959f; stroke-opacity: .35 } .head { font-weight: 600; font-size: 15px }
  @media (prefers-color-scheme: dark) { text { fill: #b1bac4 } .ours { fill: #3fb950 } .other { fill: #6e7681 } }
</style>
<text class="head" x="8" y="22">Holds per second of one hot variant (logarithmic; more is better)</text>
`, plotWidth, height)
	for _, v := range []float64{100, 1000, 10_000, 100_000} {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle" font-size="11">%s</text>`+"\n",
			x(v), plotTop-8, x(v), height-24, x(v), height-8, figure(v))
	}
	for i, bar := range bars {
		class, y := "other", plotTop+i*plotRow
		if bar.ours {
			class = "ours"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/><text x="%.1f" y="%d">%s</text>`+"\n",
			plotLabels-8, y+14, html.EscapeString(bar.what), class, plotLabels, y, max(x(bar.perSecond)-plotLabels, 1), plotBar,
			x(bar.perSecond)+6, y+14, figure(bar.perSecond))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
