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

/** Black and white of 8-bit samples; deeper samples in proportion. */
export interface Range {
  readonly black: number;
  readonly white: number;
}

/** ITU-T H.273, section 8.3. */
export const NARROW: Range = { black: 16, white: 235 };

/** Changes samples in place; alpha has the full range already. */
export function stretchColours(samples: Samples, ranges: readonly [Range, Range, Range]): void {
  const sampleMax = sampleMaxOf(samples);
  const unit = (sampleMax + 1) / 256;
  for (const [channel, { black, white }] of ranges.entries()) {
    const factor = sampleMax / ((white - black) * unit);
    for (let at = channel; at < samples.length; at += 4) {
      const stretched = (samples[at]! - black * unit) * factor + 0.5;
      samples[at] = Math.min(Math.max(stretched, 0), sampleMax);
    }
  }
}

/**
 * Makes premultiplied colours straight, in place, before any colour conversion. A colour above its
 * alpha (a lossy codec) is clamped. Alpha is the last of `channels`.
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
