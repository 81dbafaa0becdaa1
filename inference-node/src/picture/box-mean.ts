/** Means over square windows, the arithmetic under the guided filter. */

/**
 * The mean of each pixel's window, 2 * radius + 1 pixels a side, clipped at the border; the same
 * work whatever the radius. Sums are kept in double precision, so that nothing drifts.
 * @param rows to work in, as long as `from`.
 * @param sums to work in, `width` long.
 */
export function boxMean(
  from: Float32Array,
  out: Float32Array,
  width: number,
  height: number,
  radius: number,
  rows: Float32Array,
  sums: Float64Array,
): void {
  for (let y = 0, start = 0; y < height; y++, start += width) {
    sumRow(from, rows, start, width, radius);
  }
  sums.fill(0, 0, width);
  for (let y = 0; y < Math.min(radius, height); y++) addRow(sums, rows, y * width, width);
  for (let y = 0; y < height; y++) {
    if (y + radius < height) addRow(sums, rows, (y + radius) * width, width);
    if (y > radius) takeRow(sums, rows, (y - radius - 1) * width, width);
    const share = 1 / (Math.min(height - 1, y + radius) - Math.max(0, y - radius) + 1);
    const start = y * width;
    for (let x = 0; x < width; x++) out[start + x] = sums[x] * share;
  }
}

/** Means along a row. */
function sumRow(
  from: Float32Array,
  out: Float32Array,
  start: number,
  width: number,
  radius: number,
): void {
  let sum = 0;
  for (let x = 0; x < Math.min(radius, width); x++) sum += from[start + x];
  for (let x = 0; x < width; x++) {
    if (x + radius < width) sum += from[start + x + radius];
    if (x > radius) sum -= from[start + x - radius - 1];
    out[start + x] = sum / (Math.min(width - 1, x + radius) - Math.max(0, x - radius) + 1);
  }
}

function addRow(sums: Float64Array, rows: Float32Array, start: number, width: number): void {
  for (let x = 0; x < width; x++) sums[x] += rows[start + x];
}

function takeRow(sums: Float64Array, rows: Float32Array, start: number, width: number): void {
  for (let x = 0; x < width; x++) sums[x] -= rows[start + x];
}
