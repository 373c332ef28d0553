//! Report -> a picture of its memory: the plan as a bar, and the weights of every layer by dtype.

use model_factory_diagnostics::hardware::Memory;
use model_factory_diagnostics::report::{
    Available, Bytes, DtypeSummary, LayerBytes, ModelSummary, one_line, shortened,
};
use model_factory_diagnostics::{DType, Plan, Report};
use std::fmt::Write;

/// The width of the picture in pixels.
const WIDTH: usize = 880;
const MARGIN: usize = 32;
const INNER: usize = WIDTH - 2 * MARGIN;
const CHART: usize = 210;

/// The most columns of weights; neighbors share one if there are more.
const COLUMNS: usize = 160;

/// Classes of colors in [`STYLE`]: the first ones are the plan's parts, and dtypes begin after them.
const COLOURS: usize = 8;
const FIRST_DTYPE: usize = 4;

/// Sans-serif text of the viewer's system, in light or dark as the viewer prefers.
const STYLE: &str = "\
svg{font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;background:#fff;fill:#1b2230}\
.page{fill:#fff}.title{font-size:20px;font-weight:600}.note{font-size:13px;fill:#5b6675}\
.label{font-size:13px}.axis{stroke:#d5dae1;stroke-width:1}.mark{stroke:#c62f3b;stroke-width:2}\
.free{fill:#e7eaef}.c0{fill:#3b76d4}.c1{fill:#a45ad0}.c2{fill:#1f9d92}.c3{fill:#d98324}\
.c4{fill:#cf4d7f}.c5{fill:#6f9a2e}.c6{fill:#7c6f64}.c7{fill:#5468b8}\
@media(prefers-color-scheme:dark){svg{background:#12161d;fill:#e6eaf0}.page{fill:#12161d}\
.note{fill:#9aa5b4}.axis{stroke:#343c48}.free{fill:#2a313c}.mark{stroke:#ff6b76}\
.c0{fill:#5c94ec}.c1{fill:#bd7be6}.c2{fill:#38b9ac}.c3{fill:#eda04b}\
.c4{fill:#e6719d}.c5{fill:#8fbb4b}.c6{fill:#a39587}.c7{fill:#7f92dc}}";

/// An SVG picture of the memory plan and of the weights by layer and dtype; `None` when the model could not be understood.
/// It needs no other file, no font and no script, and follows the viewer's light or dark setting.
pub(crate) fn draw(report: &Report) -> Option<String> {
    let (model, plan) = (report.model.as_ref()?, report.plan.as_ref()?);
    let mut picture = Picture::default();
    picture.head(report);
    picture.plan(plan);
    picture.layers(model);
    Some(picture.finish(&report.first_line()))
}

/// The picture so far, and its height.
#[derive(Default)]
struct Picture {
    body: String,
    y: usize,
}

/// A rectangle or legend entry: its color, name and size.
struct LegendEntry {
    class: String,
    name: String,
    bytes: u64,
}

impl Picture {
    fn line(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    fn text(&mut self, x: usize, class: &str, text: &str) {
        let y = self.y;
        self.line(&format!("<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>", escaped(text)));
    }

    fn head(&mut self, report: &Report) {
        self.y = 46;
        let model = report.model.as_ref().map_or("", |model| model.variant.as_str());
        self.text(MARGIN, "title", &shortened(model, 70));
        self.y += 22;
        let machine = report.hardware.profile.unwrap_or("this machine");
        let verdict = report.verdict.word().replace('_', " ");
        let verdict = format!("{verdict} on {machine}: {}", report.input.path);
        self.text(MARGIN, "note", &shortened(&verdict, 110));
        self.y += 34;
    }

    /// The plan as one bar over the available bytes or, if those are fewer, the needed ones.
    fn plan(&mut self, plan: &Plan) {
        let named = plan.weights().saturating_add(plan.kv_cache).saturating_add(plan.activations);
        let known = plan.available != Memory::UNKNOWN;
        let free = if known { plan.available.saturating_sub(plan.total) } else { 0 };
        let mut entries: Vec<LegendEntry> = [
            ("c0", "weights", plan.weights()),
            ("c1", "KV cache", plan.kv_cache),
            ("c2", "activations", plan.activations),
            ("c3", "the rest", plan.total.saturating_sub(named)),
            ("free", "free", free),
        ]
        .into_iter()
        .map(|(class, name, bytes)| LegendEntry { class: class.into(), name: name.into(), bytes })
        .collect();
        entries.retain(|entry| entry.bytes > 0);
        let title =
            format!("Memory at context {}: {} of {}", plan.context, Bytes(plan.total), Available(plan.available));
        self.text(MARGIN, "label", &title);
        self.y += 12;
        let scale = plan.total.saturating_add(free).max(1) as f64;
        let mut x = MARGIN as f64;
        for LegendEntry { class, name, bytes } in &entries {
            let width = *bytes as f64 / scale * INNER as f64;
            let (y, title) = (self.y, format!("{name}: {}", Bytes(*bytes)));
            self.line(&rectangle(x, y as f64, width, 30.0, class, &title));
            x += width;
        }
        if plan.total > plan.available {
            let x = MARGIN as f64 + plan.available as f64 / scale * INNER as f64;
            let (top, end) = (self.y - 5, self.y + 35);
            self.line(&format!("<path d=\"M{x:.1} {top}V{end}\" class=\"mark\"><title>available</title></path>"));
        }
        self.y += 54;
        self.legend(&entries);
        self.y += 36;
    }

    /// A column for each part of the model: its height shows the bytes, its colors the dtypes.
    fn layers(&mut self, model: &ModelSummary) {
        let columns = columns(&model.weights);
        let bytes = |part: &LayerBytes| part.bytes.values().copied().fold(0, u64::saturating_add);
        let tallest = columns.iter().map(bytes).max().unwrap_or(0).max(1);
        let title = format!("Weights by layer, {} layers; a full column is {}", model.layers, Bytes(tallest));
        self.text(MARGIN, "label", &title);
        self.y += 14;
        let step = (INNER as f64 / columns.len().max(1) as f64).min(64.0);
        let width = (step * 0.82).max(1.0);
        let bottom = (self.y + CHART) as f64;
        for (index, part) in columns.iter().enumerate() {
            let (x, mut top) = (MARGIN as f64 + index as f64 * step, bottom);
            // The dtype with the most bytes is at the bottom, as in the legend.
            for (class, summary) in model.dtypes.iter().enumerate() {
                let Some(&bytes) = part.bytes.get(&summary.dtype) else { continue };
                let height = bytes as f64 / tallest as f64 * CHART as f64;
                top -= height;
                let title = format!("{}: {} {}", part.name, Bytes(bytes), summary.dtype);
                self.line(&rectangle(x, top, width, height, &dtype_class(class), &title));
            }
        }
        let (right, y) = (WIDTH - MARGIN, self.y + CHART);
        self.line(&format!("<path d=\"M{MARGIN} {y}H{right}\" class=\"axis\"/>"));
        self.y += CHART + 20;
        self.names(&columns, step);
        self.y += 32;
        let entry = |(class, summary): (usize, &DtypeSummary)| {
            let tier = summary.tier.map_or_else(|| "not supported".into(), |tier| tier.to_string());
            let name = format!("{} ({tier})", summary.dtype);
            LegendEntry { class: dtype_class(class), name, bytes: summary.bytes }
        };
        let entries: Vec<LegendEntry> = model.dtypes.iter().enumerate().map(entry).collect();
        self.legend(&entries);
        self.y += 24;
    }

    /// Names below the columns, if there is room for them.
    fn names(&mut self, columns: &[LayerBytes], step: f64) {
        let (mut free, y) = (0.0, self.y);
        for (index, part) in columns.iter().enumerate() {
            let x = MARGIN as f64 + index as f64 * step;
            let name = part.name.strip_prefix("layer ").unwrap_or(&part.name);
            let width = name.len() as f64 * 7.2;
            let last = index + 1 == columns.len();
            // The last column's name may begin left of it, so that it stays in the picture.
            let x = if last { x.min((WIDTH - MARGIN) as f64 - width) } else { x };
            if x >= free {
                self.line(&format!("<text x=\"{x:.1}\" y=\"{y}\" class=\"note\">{}</text>", escaped(name)));
                free = x + width + 14.0;
            }
        }
    }

    fn legend(&mut self, entries: &[LegendEntry]) {
        let mut x = MARGIN;
        for LegendEntry { class, name, bytes } in entries {
            let text = format!("{name} {}", Bytes(*bytes));
            let width = 22 + text.chars().count() * 7 + 22;
            if x + width > WIDTH - MARGIN && x > MARGIN {
                x = MARGIN;
                self.y += 22;
            }
            let y = self.y;
            self.line(&rectangle(x as f64, y as f64 - 11.0, 13.0, 13.0, class, name));
            self.text(x + 20, "label", &text);
            x += width;
        }
    }

    fn finish(self, description: &str) -> String {
        let Picture { body, y: height } = self;
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" class=\"page\"/>\n{body}</svg>\n",
            escaped(description)
        );
        svg
    }
}

/// The parts, with neighbors merged until there are at most [`COLUMNS`].
pub(crate) fn columns(parts: &[LayerBytes]) -> Vec<LayerBytes> {
    let together = parts.len().div_ceil(COLUMNS).max(1);
    let columns = parts.chunks(together).map(|parts| {
        let mut bytes = std::collections::BTreeMap::<DType, u64>::new();
        for (dtype, more) in parts.iter().flat_map(|part| &part.bytes) {
            let sum = bytes.entry(*dtype).or_default();
            *sum = sum.saturating_add(*more);
        }
        let first = parts.first().map_or("", |part| part.name.as_str());
        LayerBytes { name: first.into(), bytes }
    });
    columns.collect()
}

/// The class of the dtype at `index` among those of the model.
fn dtype_class(index: usize) -> String {
    format!("c{}", (FIRST_DTYPE + index) % COLOURS)
}

fn rectangle(x: f64, y: f64, width: f64, height: f64, class: &str, title: &str) -> String {
    let title = escaped(title);
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\">\
         <title>{title}</title></rect>"
    )
}

/// `text` escaped for XML, without control characters.
pub(crate) fn escaped(text: &str) -> String {
    let mut line = String::new();
    for character in one_line(text.to_owned()).chars() {
        match character {
            '&' => line.push_str("&amp;"),
            '<' => line.push_str("&lt;"),
            '>' => line.push_str("&gt;"),
            '"' => line.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => line.push('\u{fffd}'),
            other => line.push(other),
        }
    }
    line
}
