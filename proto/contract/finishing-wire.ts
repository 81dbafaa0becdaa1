/**
 * Converts from the wire with all rules of the message's comments, since any gRPC caller may write
 * it.
 */
import {
  type BackgroundPicture,
  type Finishing as ProtoFinishing,
  Finishing as ProtoFinishings,
  type Length as ProtoLength,
  type Region as ProtoRegion,
} from '../gen/matting/v1/matte_service.ts';
import { ContractError } from './errors.ts';
import {
  FINISHING_ROWS,
  type FinishingNumbers,
  OWN_NUMBER_FIELDS,
  propertyOf,
} from './finishing/table.ts';
import {
  type Background,
  type CropMargins,
  type Finishing,
  given,
  type Length,
  type Position,
  type Region,
  SHADOW,
  type Shadow,
} from './finishing.ts';
import { FRAME_PIXELS_MAX } from './limits.ts';

/** @param picture the file of a background picture */
export function finishingToProto(
  finishing: Finishing,
  picture?: BackgroundPicture,
): ProtoFinishing {
  const { region, crop, position } = finishing;
  const properties = OWN_NUMBER_FIELDS.map(propertyOf);
  return ProtoFinishings.create({
    ...Object.fromEntries(properties.map(property => [property, finishing[property] ?? 0])),
    region: region && regionToProto(region),
    crop: crop && {
      marginTop: lengthToProto(crop.top),
      marginRight: lengthToProto(crop.right),
      marginBottom: lengthToProto(crop.bottom),
      marginLeft: lengthToProto(crop.left),
    },
    position: position && { position: positionToProto(position) },
    background: backgroundToProto(finishing.background, picture),
    enlarge: finishing.enlarge,
    aspectRatio: finishing.aspectRatio,
    shadow: finishing.shadow,
  });
}

const SIDES = ['left', 'top', 'right', 'bottom'] as const;
type Side = (typeof SIDES)[number];

function bySide<Value>(make: (side: Side) => Value): Record<Side, Value> {
  return Object.fromEntries(SIDES.map(side => [side, make(side)])) as Record<Side, Value>;
}

export function regionToProto(region: Region): ProtoRegion {
  return bySide(side => lengthToProto(region[side]));
}

function lengthToProto(length: Length): ProtoLength {
  return 'px' in length
    ? { length: { $case: 'px', value: length.px } }
    : { length: { $case: 'percent', value: length.percent } };
}

type ProtoPosition = NonNullable<ProtoFinishing['position']>['position'];

function positionToProto(position: Position): ProtoPosition {
  if (position === 'original') return { $case: 'original', value: true };
  const { xPercent: x, yPercent: y } = position;
  return { $case: 'percent', value: { x, y } };
}

function backgroundToProto(
  background: Background | undefined,
  picture: BackgroundPicture | undefined,
): ProtoFinishing['background'] {
  switch (background?.kind) {
    case undefined:
      return undefined;
    case 'colour':
      return { $case: 'backgroundRgba', value: background.rgba };
    case 'picture':
      if (picture === undefined) throw new Error('a background picture without its file');
      return { $case: 'backgroundPicture', value: picture };
    case 'original':
      return { $case: 'backgroundOriginal', value: true };
  }
}

/** Does not check the background's file. @throws ContractError INVALID_REQUEST */
export function finishingFromProto(message: ProtoFinishing): Finishing {
  const { region, crop, position, background, enlarge, aspectRatio, shadow } = message;
  return given({
    region: region && regionFromProto(region, 'finishing.region'),
    crop: crop && cropFromProto(crop),
    position: position && positionFromProto(position.position),
    ...numbersFromProto(message),
    background: background && backgroundFromProto(background),
    enlarge: enlarge === false ? enlarge : undefined,
    aspectRatio: aspectRatio && ratioFromProto(aspectRatio, message),
    shadow: shadow && shadowFromProto(shadow, background),
  });
}

/** @param name the field's, for the error @throws ContractError INVALID_REQUEST */
export function regionFromProto(region: ProtoRegion, name: string): Region {
  return bySide(side => lengthFromProto(region[side], `${name}.${side}`));
}

function cropFromProto(crop: NonNullable<ProtoFinishing['crop']>): CropMargins {
  return {
    top: lengthFromProto(crop.marginTop, 'finishing.crop.margin_top'),
    right: lengthFromProto(crop.marginRight, 'finishing.crop.margin_right'),
    bottom: lengthFromProto(crop.marginBottom, 'finishing.crop.margin_bottom'),
    left: lengthFromProto(crop.marginLeft, 'finishing.crop.margin_left'),
  };
}

function lengthFromProto(message: ProtoLength | undefined, name: string): Length {
  const length = message?.length;
  if (length === undefined) return { px: 0 };
  if (!Number.isFinite(length.value) || length.value < 0) {
    throw new ContractError('INVALID_REQUEST', `${name} must be a number of at least 0.`);
  }
  return length.$case === 'px' ? { px: length.value } : { percent: length.value };
}

function positionFromProto(position: ProtoPosition): Position {
  if (position?.$case === 'original') return 'original';
  if (position === undefined) throw invalid('position must not be empty');
  const percent = { min: 0, max: 100 };
  return {
    xPercent: within(position.value.x, percent, 'position.percent.x'),
    yPercent: within(position.value.y, percent, 'position.percent.y'),
  };
}

function numbersFromProto(message: ProtoFinishing): FinishingNumbers {
  if (message.outputWidth * message.outputHeight > FRAME_PIXELS_MAX) {
    throw invalid(`output_width times output_height must be at most ${FRAME_PIXELS_MAX} pixels`);
  }
  const numbers = OWN_NUMBER_FIELDS.flatMap(field => {
    const property = propertyOf(field);
    const name = property.replaceAll(/[A-Z]/g, letter => `_${letter.toLowerCase()}`);
    const number = message[property];
    return number === 0 ? [] : [[property, within(number, FINISHING_ROWS[field].number, name)]];
  });
  return Object.fromEntries(numbers);
}

function ratioFromProto(
  { width, height }: NonNullable<ProtoFinishing['aspectRatio']>,
  { outputWidth, outputHeight }: ProtoFinishing,
): NonNullable<Finishing['aspectRatio']> {
  if (outputWidth !== 0 && outputHeight !== 0) {
    throw invalid('aspect_ratio must be absent beside output_width and output_height');
  }
  const side = FINISHING_ROWS.aspect_ratio.text;
  return {
    width: within(width, side, 'aspect_ratio.width'),
    height: within(height, side, 'aspect_ratio.height'),
  };
}

function backgroundFromProto(background: NonNullable<ProtoFinishing['background']>): Background {
  switch (background.$case) {
    case 'backgroundRgba':
      return { kind: 'colour', rgba: background.value };
    case 'backgroundPicture':
      return { kind: 'picture' };
    case 'backgroundOriginal':
      return { kind: 'original' };
  }
}

function shadowFromProto(
  message: NonNullable<ProtoFinishing['shadow']>,
  background: ProtoFinishing['background'],
): Shadow {
  if (background?.$case === 'backgroundOriginal') {
    throw invalid('shadow must be absent with background_original');
  }
  const { opacity, blur, offsetX, offsetY } = { ...SHADOW.absent, ...given(message) };
  const offset = FINISHING_ROWS.shadow_offset.text;
  return {
    opacity: within(opacity, FINISHING_ROWS.shadow_opacity.number, 'shadow.opacity'),
    blur: within(blur, FINISHING_ROWS.shadow_blur.number, 'shadow.blur'),
    offsetX: within(offsetX, offset, 'shadow.offset_x'),
    offsetY: within(offsetY, offset, 'shadow.offset_y'),
  };
}

function within(value: number, { min, max }: { min: number; max: number }, name: string): number {
  if (value >= min && value <= max) return value;
  throw invalid(`${name} must be from ${min} to ${max}`);
}

function invalid(detail: string): ContractError {
  return new ContractError('INVALID_REQUEST', `finishing.${detail}.`);
}
