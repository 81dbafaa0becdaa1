/** Samples as files store them. Indexes of loops lie inside the arrays: no `undefined` is read. */

export type Samples = Uint8Array | Uint16Array;

export function sampleMaxOf(samples: Samples): number {
  return samples.BYTES_PER_ELEMENT === 1 ? 255 : 65_535;
}

export function bytesOfSamples(samples: Samples): Uint8Array {
  if (samples instanceof Uint8Array) return samples;
  const bytes = new Uint8Array(samples.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = (samples[at]! * 255) / 65_535 + 0.5;
  return bytes;
}

/**
 * Makes colours multiplied by alpha straight, in place, before any colour conversion. If alpha is
 * 0, the colour becomes 0; a colour above its alpha (a lossy codec) is clamped. Alpha is the last
 * of `channels`.
 */
export function divideByAlpha(
  samples: Samples,
  channels: 2 | 4 = 4,
  sampleMax: number = sampleMaxOf(samples),
): void {
  for (let at = 0; at < samples.length; at += channels) {
    const alpha = samples[at + channels - 1]!;
    if (alpha === sampleMax) continue;
    const factor = alpha === 0 ? 0 : sampleMax / alpha;
    for (let channel = at; channel < at + channels - 1; channel++) {
      const straight = samples[channel]! * factor + 0.5;
      samples[channel] = Math.min(straight, sampleMax);
    }
  }
}
