"use strict";

// Small graphs, unpacked from bytes (see explorer.py) and drawn as SVG.
const unpackGraphs = (text) => {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const graphs = [];
  for (let at = 0; at < bytes.length;) {
    const [nodes, edges, centre] = bytes.subarray(at, at + 3);
    const places = at + 3, kinds = places + 2 * nodes, pairs = kinds + nodes;
    at = pairs + 2 * edges;
    graphs.push({
      nodes, edges, centre: centre - 1,
      places: bytes.subarray(places, kinds),
      kinds: bytes.subarray(kinds, pairs),
      pairs: bytes.subarray(pairs, at),
    });
  }
  return graphs;
};

const svgElement = (name, attributes) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

const sketchGraph = (graph, { width, height, coloured, label }) => {
  const drawing = svgElement("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label,
  });
  const radius = Math.max(2, Math.min(7, 0.32 * width / Math.sqrt(30 + 4 * graph.nodes)));
  const edge = radius + 6;
  const xs = [], ys = [];
  for (let k = 0; k < graph.nodes; k++) {
    xs.push(graph.places[2 * k]);
    ys.push(graph.places[2 * k + 1]);
  }
  const [left, right, top, bottom] = [
    Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys),
  ];
  const scale = Math.min(
    (width - 2 * edge) / Math.max(right - left, 1), (height - 2 * edge) / Math.max(bottom - top, 1),
    graph.nodes < 3 ? width / 600 : Infinity,
  );
  const x = (k) => ((xs[k] - (left + right) / 2) * scale + width / 2).toFixed(1);
  const y = (k) => ((ys[k] - (top + bottom) / 2) * scale + height / 2).toFixed(1);
  let path = "";
  for (let k = 0; k < graph.pairs.length; k += 2) {
    const [a, b] = [graph.pairs[k], graph.pairs[k + 1]];
    path += `M${x(a)} ${y(a)}L${x(b)} ${y(b)}`;
  }
  drawing.append(svgElement("path", { class: width < 150 ? "edge fine" : "edge", d: path }));
  for (let k = 0; k < graph.nodes; k++) {
    const colour = coloured ? `c${graph.kinds[k] % 10}` : "plain";
    drawing.append(svgElement("circle", { class: `node ${colour}`, cx: x(k), cy: y(k), r: radius }));
    if (k === graph.centre) {
      drawing.append(svgElement("circle", { class: "ring", cx: x(k), cy: y(k), r: radius + 3 }));
    }
  }
  return drawing;
};
