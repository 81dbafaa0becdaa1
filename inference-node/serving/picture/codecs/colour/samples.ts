/**
 * Interleaved RGBA as a file stores it: in the file's own colours, 8 or 16 bits a sample. Pure
 * arithmetic, in place where possible. Indexes below lie inside the arrays: no `undefined` is read.
 */

/** A sample is 0 to 255 or 0 to 65535. */
export type Samples = Uint8Array | Uint16Array;

export function sampleMaxOf(samples: Samples): number {
  return samples.BYTES_PER_ELEMENT === 1 ? 255 : 65_535;
}

/** Converts to 8 bits; samples of 8 bits are returned as they are. */
export function bytesOfSamples(samples: Samples): Uint8Array {
  if (samples instanceof Uint8Array) return samples;
  const bytes = new Uint8Array(samples.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = (samples[at]! * 255) / 65_535 + 0.5;
  return bytes;
}

/**
 * Converts colours multiplied by alpha (AVIF's `prem`, JPEG XL's associated alpha) to straight
 * ones, in place. The encoded values are multiplied, so this comes before any colour conversion.
 * Where alpha is 0 the colour becomes 0. A lossy codec may leave a colour above its alpha: it is
 * clamped.
 * @param channels per pixel, alpha last.
 * @param sampleMax largest value of a channel.
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
      samples[channel] = straight > sampleMax ? sampleMax : straight;
    }
  }
}
