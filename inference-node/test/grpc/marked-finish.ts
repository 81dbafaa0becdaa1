/**
 * In place of refine.ts and foreground.ts where a picture worker finishes a picture: both do their
 * work and leave a mark in the alpha, the one thing that a cut-out and a mask both show.
 */
import * as foreground from '../../src/picture/matte/foreground.ts';
import * as refine from '../../src/picture/matte/refine.ts';

export const REFINED_MARK = 90;
export const RECOLOURED_MARK = 60;

export const stretchMatte = refine.stretchMatte;

export const refineMatte: typeof refine.refineMatte = (...refined) =>
  refine.refineMatte(...refined).fill(REFINED_MARK);

export const estimateForeground: typeof foreground.estimateForeground = (...estimated) => {
  const result = foreground.estimateForeground(...estimated);
  const [, alpha] = estimated;
  alpha.fill(RECOLOURED_MARK);
  return result;
};
