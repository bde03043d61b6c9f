"use strict";

// Colours for the map, taken from the style sheet, which knows light and dark.
const readPalette = () => {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return {
    ink: get("--ink"), card: get("--card"), soft: get("--soft"),
    kinds: Array.from({ length: 10 }, (_, k) => get(`--c${k}`)),
    scale: Array.from({ length: 8 }, (_, k) => get(`--q${k + 1}`)),
  };
};

// The least and the largest number of a column.
const rangeOf = (item) => {
  const there = item.values.filter((value) => value !== null);
  return there.length ? [Math.min(...there), Math.max(...there)] : [0, 0];
};

// A colour of the scale, from 0 to 1.
const mixed = (share, scale) => {
  const place = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
  const low = Math.floor(place), high = Math.min(low + 1, scale.length - 1);
  const part = (text, k) => parseInt(text.slice(1 + 2 * k, 3 + 2 * k), 16);
  const blend = (k) => Math.round(
    part(scale[low], k) * (1 - place + low) + part(scale[high], k) * (place - low),
  );
  return `rgb(${blend(0)} ${blend(1)} ${blend(2)})`;
};

// The colour of each value of a column.
const coloursOf = (item, palette) => {
  if (item.kind === "category") {
    return item.values.map((value) => (value < 0 ? palette.soft : palette.kinds[value % 10]));
  }
  const [low, high] = rangeOf(item);
  const share = (value) => (high > low ? (value - low) / (high - low) : 0.5);
  return item.values.map((value) => (
    value === null ? palette.soft : mixed(share(value), palette.scale)
  ));
};
