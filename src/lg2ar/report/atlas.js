"use strict";

// The map: points on a canvas that can be zoomed and moved; pointing at one shows its graph,
// choosing it its nearest neighbours. All texts from the data are set as text, never as HTML.
(() => {
  const store = document.getElementById("atlas-data");
  if (!store) return;
  const data = JSON.parse(store.textContent);
  const graphs = unpackGraphs(data.graphs);
  const count = data.ids.length;
  const find = (id) => document.getElementById(id);
  const canvas = find("canvas"), card = find("card"), chosen = find("chosen");
  const paint = canvas.getContext("2d");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const PAD = 22, MOST_ZOOM = 60, ASPECT = 0.75;

  const state = {
    encoder: 0, layout: 0, colour: data.colour, hidden: new Set(),
    zoom: 1, x: 0.5, y: 0.5, // the middle of what is seen, in units of the map
    over: -1, picked: -1, at: new Float64Array(2 * count), moving: 0,
  };

  const make = (name, text, attributes = {}) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const short = (value) => (Number.isInteger(value) ? String(value) : String(+value.toPrecision(4)));
  const column = () => data.columns[state.colour];
  const textOf = (item, k) => {
    const value = item.values[k];
    if (item.kind === "category") return value < 0 ? "missing" : item.names[value];
    return value === null ? "missing" : short(value);
  };

  let palette = readPalette(), colours = [], shapes = [];
  const recolour = () => {
    const item = column();
    colours = coloursOf(item, palette);
    shapes = item.values.map((value) => (item.kind === "category" && value >= 0 ? value % 4 : 0));
  };

  // Where points are.

  const layouts = () => data.maps[state.encoder].layouts;
  const target = () => layouts()[Math.min(state.layout, layouts().length - 1)].points;
  const wide = () => // a map's width on the screen, before zooming; its height is ASPECT times that
    Math.min(canvas.clientWidth - 2 * PAD, (canvas.clientHeight - 2 * PAD) / ASPECT);
  const place = (k) => [
    canvas.clientWidth / 2 + (state.at[2 * k] - state.x) * wide() * state.zoom,
    canvas.clientHeight / 2 - (state.at[2 * k + 1] - state.y) * wide() * ASPECT * state.zoom,
  ];
  const isHidden = (k) => column().kind === "category" && state.hidden.has(column().values[k]);
  const nearestTo = (x, y, most) => {
    let found = -1, best = most * most;
    for (let k = 0; k < count; k++) {
      if (isHidden(k)) continue;
      const [u, v] = place(k);
      const apart = (u - x) ** 2 + (v - y) ** 2;
      if (apart < best) [found, best] = [k, apart];
    }
    return found;
  };
  const moveTo = (points) => { // smoothly, unless the reader asked for calm
    const start = Float64Array.from(state.at), began = performance.now();
    const run = ++state.moving;
    const step = (now) => {
      if (run !== state.moving) return;
      const t = calm.matches ? 1 : Math.min(1, (now - began) / 450);
      const eased = t * t * (3 - 2 * t);
      for (let k = 0; k < 2 * count; k++) {
        state.at[k] = start[k] + (points[k] / 10000 - start[k]) * eased;
      }
      draw();
      if (t < 1) requestAnimationFrame(step);
    };
    step(performance.now());
  };
  const clamp = () => { // what is seen stays within the map
    state.zoom = Math.min(MOST_ZOOM, Math.max(1, state.zoom));
    const half = 0.5 / state.zoom;
    state.x = Math.min(1 - half, Math.max(half, state.x));
    state.y = Math.min(1 - half, Math.max(half, state.y));
  };
  const zoomBy = (factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) => {
    const before = state.zoom;
    state.zoom = Math.min(MOST_ZOOM, Math.max(1, state.zoom * factor));
    const kept = (1 / before - 1 / state.zoom) / wide();
    state.x += (x - canvas.clientWidth / 2) * kept;
    state.y -= (y - canvas.clientHeight / 2) * kept / ASPECT;
    clamp();
    hideCard();
    draw();
  };

  // Drawing.

  const trace = (shape, x, y, r) => {
    paint.beginPath();
    if (shape === 0) paint.arc(x, y, r, 0, 2 * Math.PI);
    else if (shape === 1) paint.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r);
    else if (shape === 2) {
      paint.moveTo(x, y - 1.25 * r);
      for (const [u, v] of [[1.25, 0], [0, 1.25], [-1.25, 0]]) paint.lineTo(x + u * r, y + v * r);
    } else {
      paint.moveTo(x, y - 1.2 * r);
      for (const [u, v] of [[1.15, 0.85], [-1.15, 0.85]]) paint.lineTo(x + u * r, y + v * r);
    }
    paint.closePath();
  };
  const draw = () => {
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint.clearRect(0, 0, width, height);
    const near = state.picked < 0 ? [] : data.neighbours[state.picked];
    paint.strokeStyle = palette.soft;
    paint.lineWidth = 1.2;
    for (const k of near) {
      paint.beginPath();
      paint.moveTo(...place(state.picked));
      paint.lineTo(...place(k));
      paint.stroke();
    }
    const size = (count > 800 ? 3.2 : 4.6) * Math.min(1, width / 500) ** 0.5
      * Math.min(2, state.zoom ** 0.25);
    paint.lineWidth = 0.8; // an outline, for the scale of numbers has pale ends
    paint.strokeStyle = column().kind === "number" ? palette.soft : palette.card;
    for (let k = 0; k < count; k++) {
      if (isHidden(k)) continue;
      const [x, y] = place(k);
      if (x < -9 || y < -9 || x > width + 9 || y > height + 9) continue;
      trace(shapes[k], x, y, size);
      paint.fillStyle = colours[k];
      paint.fill();
      paint.stroke();
    }
    const ring = (k, wide, dashes) => {
      paint.strokeStyle = palette.ink;
      paint.lineWidth = wide;
      paint.setLineDash(dashes);
      trace(0, ...place(k), size + 4);
      paint.stroke();
      paint.setLineDash([]);
    };
    for (const k of near) ring(k, 1.2, [2, 2]);
    if (state.over >= 0) ring(state.over, 1.5, []);
    if (state.picked >= 0) ring(state.picked, 2.5, []);
    const { zoom, over, picked } = state;
    Object.assign(canvas.dataset, { zoom: zoom.toFixed(2), over, picked });
  };

  // What is told of a point.

  const title = (k) => `${data.level} ${data.ids[k]}`;
  const facts = (k) => {
    const list = make("dl");
    for (const item of data.columns) list.append(make("dt", item.name), make("dd", textOf(item, k)));
    return list;
  };
  const drawn = (k, width, height) => sketchGraph(graphs[k], {
    width, height, coloured: data.kinds.what !== "", label: `Drawing of ${title(k)}`,
  });
  const whatIsDrawn = (k) => { // said where it is not all
    const { nodes, edges } = graphs[k], [allNodes, allEdges] = data.totals[k];
    const parts = [];
    if (data.level === "node") parts.push(`${nodes} nodes around it`);
    else if (nodes < allNodes) parts.push(`${nodes} of ${allNodes} nodes`);
    if (edges < allEdges) parts.push(`${edges} of ${allEdges} edges between them`);
    return parts.length ? `Drawn: ${parts.join(", ")}` : "";
  };
  const hideCard = () => {
    card.hidden = true;
    state.over = -1;
  };
  const showCard = (k, x, y) => {
    if (k !== state.over || card.hidden) {
      card.replaceChildren(drawn(k, 200, 140), make("strong", title(k)), facts(k));
      card.hidden = false;
      state.over = k;
      draw();
    }
    const box = canvas.getBoundingClientRect();
    const [u, v] = place(k);
    const left = box.left + u + (u > box.width / 2 ? -card.offsetWidth - 16 : 16);
    card.style.left = `${Math.max(4, Math.min(left, innerWidth - card.offsetWidth - 4))}px`;
    const top = box.top + v - card.offsetHeight / 2;
    card.style.top = `${Math.max(4, Math.min(top, innerHeight - card.offsetHeight - 4))}px`;
  };
  const pick = (k) => {
    state.picked = k;
    const parts = [make("h3", title(k)), drawn(k, 340, 220)];
    const told = whatIsDrawn(k);
    if (told) parts.push(make("p", told, { class: "note" }));
    if (data.kinds.what) parts.push(kindsLegend(k));
    parts.push(facts(k), make("h4", "Nearest neighbours"));
    const list = make("ul", undefined, { class: "near" });
    data.neighbours[k].forEach((other, place) => {
      const button = make("button", undefined, { type: "button" });
      const said = data.columns[state.colour];
      button.append(
        drawn(other, 96, 72), make("span", data.ids[other]),
        make("small", `${said.name} ${textOf(said, other)}`),
        make("small", `distance ${short(data.distances[k][place])}`),
      );
      button.addEventListener("click", () => pick(other));
      const item = make("li");
      item.append(button);
      list.append(item);
    });
    parts.push(data.neighbours[k].length ? list : make("p", "There are none.", { class: "note" }));
    chosen.replaceChildren(...parts);
    const [x, y] = place(k);
    if (x < 0 || y < 0 || x > canvas.clientWidth || y > canvas.clientHeight) {
      [state.x, state.y] = [state.at[2 * k], state.at[2 * k + 1]];
      clamp();
    }
    draw();
  };
  const kindsLegend = (k) => {
    const list = make("ul", undefined, { class: "legend" });
    list.append(make("li", data.kinds.what, { class: "soft" }));
    for (const kind of [...new Set(graphs[k].kinds)].sort((a, b) => a - b)) {
      const item = make("li");
      item.append(make("i", "", { class: `dot c${kind % 10}` }), data.kinds.names[kind]);
      list.append(item);
    }
    return list;
  };

  // Controls.

  const retellLegend = () => {
    const item = column(), legend = find("atlas-legend");
    legend.replaceChildren();
    if (item.kind === "number") {
      const [low, high] = rangeOf(item);
      const scale = make("li", undefined, { class: "scale" });
      scale.append(make("span", `${item.name} ${short(low)}`));
      for (let k = 1; k < 9; k++) scale.append(make("i", "", { class: `q${k}` }));
      scale.append(make("span", short(high)));
      legend.append(scale);
      return;
    }
    const used = [...new Set(item.values)].sort((a, b) => a - b);
    for (const value of used) {
      const name = value < 0 ? "missing" : item.names[value];
      const button = make("button", undefined, {
        type: "button", "aria-pressed": String(!state.hidden.has(value)), title: "Show or hide",
      });
      const marks = ["●", "■", "◆", "▲"];
      const mark = make("span", value < 0 ? "●" : marks[value % 4], { "aria-hidden": "true" });
      if (value >= 0) mark.className = `c${value % 10}`;
      button.append(mark, ` ${item.name} ${name}`);
      button.addEventListener("click", () => {
        if (!state.hidden.delete(value)) state.hidden.add(value);
        button.setAttribute("aria-pressed", String(!state.hidden.has(value)));
        hideCard();
        draw();
      });
      const entry = make("li");
      entry.append(button);
      legend.append(entry);
    }
  };
  const colourBy = find("colour-by");
  data.columns.forEach((item, k) => colourBy.append(new Option(item.name, k)));
  colourBy.value = String(state.colour);
  colourBy.addEventListener("change", () => {
    state.colour = Number(colourBy.value);
    state.hidden.clear();
    recolour();
    retellLegend();
    if (state.picked >= 0) pick(state.picked);
    draw();
  });
  const radios = (id, names, choose) => {
    const box = find(id);
    box.hidden = names.length < 2;
    names.forEach((name, k) => {
      const label = make("label"), input = make("input", undefined, { type: "radio", name: id });
      input.checked = k === 0;
      input.addEventListener("change", () => choose(k));
      label.append(input, make("span", name));
      box.append(label);
    });
  };
  radios("encoders", data.maps.map((map) => map.name), (k) => {
    state.encoder = k;
    moveTo(target());
  });
  radios("layouts", data.maps[0].layouts.map((layout) => layout.name), (k) => {
    state.layout = k;
    moveTo(target());
  });
  const search = find("find");
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    if (!wanted) return;
    const ids = data.ids.map((id) => id.toLowerCase());
    let found = ids.indexOf(wanted);
    if (found < 0) found = ids.findIndex((id) => id.startsWith(wanted));
    if (found < 0) found = ids.findIndex((id) => id.includes(wanted));
    search.setAttribute("aria-invalid", String(found < 0));
    if (found >= 0) pick(found);
  });
  find("zoom-in").addEventListener("click", () => zoomBy(1.6));
  find("zoom-out").addEventListener("click", () => zoomBy(1 / 1.6));
  const reset = () => {
    [state.zoom, state.x, state.y] = [1, 0.5, 0.5];
    hideCard();
    draw();
  };
  find("zoom-reset").addEventListener("click", reset);

  // Pointers: one moves or chooses, two zoom; a wheel zooms once the map has the focus.

  const down = new Map();
  let travelled = 0;
  const local = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    down.set(event.pointerId, local(event));
    travelled = down.size > 1 ? Infinity : 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = local(event);
    if (!down.has(event.pointerId)) {
      const k = event.pointerType === "touch" ? -1 : nearestTo(x, y, 14);
      canvas.classList.toggle("over", k >= 0);
      if (k >= 0) showCard(k);
      else if (state.over >= 0) {
        hideCard();
        draw();
      }
      return;
    }
    const [u, v] = down.get(event.pointerId);
    const others = [...down].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    down.set(event.pointerId, [x, y]);
    travelled += Math.hypot(x - u, y - v);
    if (others.length) {
      const [a, b] = others[0];
      const before = Math.hypot(u - a, v - b), after = Math.hypot(x - a, y - b);
      if (before > 0) zoomBy(after / before, (x + a) / 2, (y + b) / 2);
    } else if (travelled > 4) {
      canvas.classList.add("moving");
      hideCard();
      state.x -= (x - u) / (wide() * state.zoom);
      state.y += (y - v) / (wide() * ASPECT * state.zoom);
      clamp();
      draw();
    }
  });
  const release = (event) => {
    if (down.delete(event.pointerId) && event.type === "pointerup" && travelled <= 4) {
      const touch = event.pointerType === "touch";
      const k = nearestTo(...local(event), touch ? 24 : 14);
      if (k >= 0) {
        pick(k);
        showCard(k);
      } else {
        hideCard();
        draw();
      }
    }
    canvas.classList.remove("moving");
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "touch") return; // the card of a tapped point stays
    hideCard();
    draw();
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return; // let the page scroll
    event.preventDefault();
    zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), ...local(event));
  }, { passive: false });
  document.addEventListener("scroll", () => { card.hidden = true; }, { passive: true });

  // Keys: arrows go from point to point, + - 0 zoom.

  const stepTo = (across, up) => {
    const from = state.picked;
    if (from < 0) return pick(0);
    const [x, y] = place(from);
    let found = -1, best = Infinity;
    for (let k = 0; k < count; k++) {
      if (k === from || isHidden(k)) continue;
      const [u, v] = [place(k)[0] - x, place(k)[1] - y];
      const ahead = u * across + v * up, aside = Math.abs(u * up) + Math.abs(v * across);
      if (ahead > 0.5 && ahead + 2 * aside < best) [found, best] = [k, ahead + 2 * aside];
    }
    if (found >= 0) pick(found);
    return undefined;
  };
  const keys = {
    ArrowRight: () => stepTo(1, 0), ArrowLeft: () => stepTo(-1, 0),
    ArrowDown: () => stepTo(0, 1), ArrowUp: () => stepTo(0, -1),
    "+": () => zoomBy(1.6), "=": () => zoomBy(1.6), "-": () => zoomBy(1 / 1.6), 0: reset,
    Escape: () => { hideCard(); draw(); },
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });

  canvas.setAttribute(
    "aria-label",
    `Map of ${count} ${data.level}s; arrow keys go from point to point, plus and minus zoom`,
  );
  canvas.whereIs = place; // for scripts that want to point at something
  find("atlas").hidden = false;
  recolour();
  target().forEach((value, k) => { state.at[k] = value / 10000; });
  retellLegend();
  if (count) pick(0);
  new ResizeObserver(() => { clamp(); draw(); }).observe(canvas);
  document.addEventListener("theme-changed", () => {
    palette = readPalette();
    recolour();
    draw();
  });
})();
