/**
 * Converts from the wire with the rules that need no picture, since any gRPC caller may write it.
 */
import {
  type BackgroundPicture,
  type Hints as ProtoHints,
  Hints as ProtoHintsMessage,
  type HintShape as ProtoShape,
} from '../gen/matting/v1/matte_service.ts';
import { ContractError } from './errors.ts';
import { regionFromProto, regionToProto } from './finishing-wire.ts';
import { type HintShape, type Hints, requireShapes } from './hints.ts';

/** @param picture the file of a hints picture */
export function hintsToProto(hints: Hints, picture?: BackgroundPicture): ProtoHints {
  const { subjectBox, keep = [], erase = [] } = hints;
  if (hints.picture && picture === undefined)
    throw new Error('hints of a picture without its file');
  return ProtoHintsMessage.create({
    subjectBox: subjectBox && regionToProto(subjectBox),
    keep: keep.map(shapeToProto),
    erase: erase.map(shapeToProto),
    picture: hints.picture && picture,
  });
}

function shapeToProto(shape: HintShape): ProtoShape {
  if ('line' in shape) {
    const value = { points: shape.line.flat(), radius: shape.radius };
    return { shape: { $case: 'line', value } };
  }
  const [left, top, right, bottom] = shape.box;
  return { shape: { $case: 'box', value: { left, top, right, bottom } } };
}

/**
 * Does not check the file, nor what needs the image's size. @throws ContractError INVALID_REQUEST,
 * INVALID_PARAMETER
 */
export function hintsFromProto(message: ProtoHints): Hints {
  const { subjectBox, keep, erase, picture } = message;
  if (picture !== undefined && keep.length + erase.length > 0) {
    throw invalid('picture must come without keep and erase');
  }
  const hints: Hints = {
    ...(subjectBox && { subjectBox: regionFromProto(subjectBox, 'hints.subject_box') }),
    ...(keep.length > 0 && { keep: keep.map(shapeFromProto) }),
    ...(erase.length > 0 && { erase: erase.map(shapeFromProto) }),
    ...(picture && { picture: true as const }),
  };
  requireShapes(hints);
  return hints;
}

function shapeFromProto({ shape }: ProtoShape): HintShape {
  if (shape === undefined) throw invalid('keep and erase must not have an empty shape');
  if (shape.$case === 'box') {
    const { left, top, right, bottom } = shape.value;
    return { box: [left, top, right, bottom] };
  }
  const { points, radius } = shape.value;
  if (points.length % 2 !== 0) throw invalid('line.points must have x and y of each point');
  const line = Array.from(
    { length: points.length / 2 },
    // Each point has two numbers, so these exist.
    (_none, index) => [points[2 * index]!, points[2 * index + 1]!] as const,
  );
  return { line, radius };
}

function invalid(detail: string): ContractError {
  return new ContractError('INVALID_REQUEST', `hints.${detail}.`);
}
