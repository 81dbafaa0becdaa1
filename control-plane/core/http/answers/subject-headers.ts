/** What a node saw in the picture, in headers: where the picture itself is the answer. */
import type { Sight } from '#contract/finishing.ts';

/** Enough for a pixel of the largest picture. */
const SHARE_DIGITS = 6;

/**
 * `X-Subject-Box` (left, top, width and height in pixels of the input) and `X-Subject-Share` (of the
 * input's area). Without a subject the share alone, 0; neither where the node did not say.
 */
export function subjectHeaders(sight: Sight | null): Record<string, string> {
  if (sight === null) return {};
  if (sight.subject === null) return { 'x-subject-share': '0' };
  const { inputBox, share } = sight.subject;
  const { left, top, width, height } = inputBox;
  return {
    'x-subject-box': [left, top, width, height].join(','),
    'x-subject-share': String(Number(share.toPrecision(SHARE_DIGITS))),
  };
}
