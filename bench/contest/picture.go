package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// bar is one of a picture: its length, and the range that it is the median of.
type bar struct {
	label  string
	values []float64
}

// bars draws a horizontal bar chart as SVG, readable on light and dark pages.
func bars(title string, digits int, all []bar) string {
	const left, width, height, top = 310, 420, 26, 40
	longest := 0.0
	for _, b := range all {
		longest = max(longest, slices.Max(b.values))
	}
	var out strings.Builder
	total := top + height*len(all) + 10
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" font-family="sans-serif" font-size="13">`+"\n", left+width+190, total)
	out.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	fmt.Fprintf(&out, `<text x="10" y="22" font-size="15" font-weight="bold" fill="#222222">%s</text>`+"\n", html.EscapeString(title))
	for i, b := range all {
		y := top + i*height
		scale := func(value float64) float64 {
			if longest == 0 {
				return 0
			}
			return value / longest * width
		}
		fill := "#9aa5b1"
		if strings.HasPrefix(b.label, "walstream") {
			fill = "#2f6db5"
		}
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="end" fill="#222222">%s</text>`+"\n", left-8, y+15, html.EscapeString(b.label))
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%.1f" height="18" fill="%s"/>`+"\n", left, y+2, scale(median(b.values)), fill)
		least, most := scale(slices.Min(b.values)), scale(slices.Max(b.values))
		fmt.Fprintf(&out, `<path d="M%.1f %d H%.1f" stroke="#222222" stroke-width="1.5"/>`+"\n", left+least, y+11, left+most)
		fmt.Fprintf(&out, `<text x="%.1f" y="%d" fill="#222222">%s</text>`+"\n", left+most+6, y+15, spread(b.values, digits))
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// pictures of a report: file names and what is in them.
func (r *report) pictures(name string) map[string]string {
	files := map[string]string{}
	for n, d := range r.Drains {
		for _, p := range []struct {
			name, title string
			digits      int
			figure      func(sample) float64
		}{
			{"rate", "rows/s", 0, sample.rate},
			{"cpu", "CPU seconds per million rows (process)", 1, sample.cpu},
			{"memory", "Peak memory, MB", 0, sample.peak},
		} {
			var all []bar
			for _, contender := range d.names() {
				if values := d.values(contender, p.figure); len(values) > 0 {
					all = append(all, bar{contender, values})
				}
			}
			if len(all) > 0 {
				files[fmt.Sprintf("%s-drain%d-%s.svg", name, n+1, p.name)] = bars(p.title+": "+d.Work.String(), p.digits, all)
			}
		}
	}
	byRate := map[int][2][]bar{}
	for _, at := range r.latencies() {
		pair := byRate[at.rate]
		pair[0] = append(pair[0], bar{at.name, at.values(func(l latency) float64 { return l.P50 })})
		pair[1] = append(pair[1], bar{at.name, at.values(func(l latency) float64 { return l.P99 })})
		byRate[at.rate] = pair
	}
	for rate, pair := range byRate {
		for i, percentile := range []string{"p50", "p99"} {
			title := fmt.Sprintf("Commit to consumer, %s, ms, at %d rows/s", percentile, rate)
			files[fmt.Sprintf("%s-latency%d-%s.svg", name, rate, percentile)] = bars(title, 1, pair[i])
		}
	}
	return files
}
