/** Whether this node makes the result that is asked for, as far as its size shows before it is made. */
import { ContractError } from '#contract/errors.ts';
import { frameRange, requireFrame } from '#contract/finishing/frame.ts';
import type { Size } from '#contract/finishing.ts';
import type { FinishChoices } from './finish-choices.ts';

/**
 * Refused is what no subject would make possible.
 * @param input of the picture, undefined: not known; where `turned`, perhaps not oriented
 * @throws ContractError INVALID_PARAMETER, NODE_INCAPABLE
 */
export function requireMakeable(
  { outputFormat, finishing }: Pick<FinishChoices, 'outputFormat' | 'finishing'>,
  input: Size | undefined,
  { jxlPixelsMax }: { readonly jxlPixelsMax: number },
  { turned }: { readonly turned: boolean },
): void {
  const { least } = frameRange(finishing ?? {}, input, { turned });
  if (finishing !== undefined && input !== undefined) requireFrame(finishing, input, least);
  if (outputFormat === 'jxl') requireJxlPixels(least, jxlPixelsMax);
}

/** Of an input or a result. @throws ContractError NODE_INCAPABLE */
export function requireJxlPixels(pixels: number, jxlPixelsMax: number): void {
  if (pixels <= jxlPixelsMax) return;
  const detail = `this node takes and writes JPEG XL up to ${jxlPixelsMax} pixels`;
  throw new ContractError('NODE_INCAPABLE', detail);
}
