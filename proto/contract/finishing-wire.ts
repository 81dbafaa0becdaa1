/**
 * Translates finishing to its wire message and back. The way back checks every rule of the message's
 * comments, since any caller of gRPC may have written it.
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
  type Background,
  type CropMargins,
  type Finishing,
  type Length,
  type Position,
  QUALITY,
  RATIO_SIDE,
  type Region,
  SCALE_PERCENT,
  SHADOW,
  type Shadow,
  SIZE_MEGAPIXELS,
} from './finishing.ts';
import { FRAME_PIXELS_MAX, IMAGE_SIDE_PX_MAX } from './limits.ts';

/** @param picture the file of a background that is a picture */
export function finishingToProto(
  finishing: Finishing,
  picture?: BackgroundPicture,
): ProtoFinishing {
  const { region, crop, scalePercent, position, outputWidth, outputHeight } = finishing;
  return ProtoFinishings.create({
    region: region && regionToProto(region),
    crop: crop && {
      marginTop: lengthToProto(crop.top),
      marginRight: lengthToProto(crop.right),
      marginBottom: lengthToProto(crop.bottom),
      marginLeft: lengthToProto(crop.left),
    },
    scalePercent: scalePercent ?? 0,
    position: position && { position: positionToProto(position) },
    outputWidth: outputWidth ?? 0,
    outputHeight: outputHeight ?? 0,
    sizeMaxMegapixels: finishing.sizeMaxMegapixels ?? 0,
    background: backgroundToProto(finishing.background, picture),
    enlarge: finishing.enlarge,
    aspectRatio: finishing.aspectRatio,
    quality: finishing.quality ?? 0,
    shadow: finishing.shadow,
  });
}

export function regionToProto({ left, top, right, bottom }: Region): ProtoRegion {
  return {
    left: lengthToProto(left),
    top: lengthToProto(top),
    right: lengthToProto(right),
    bottom: lengthToProto(bottom),
  };
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

/**
 * Checks everything but the file of a background.
 * @throws ContractError INVALID_REQUEST
 */
export function finishingFromProto(message: ProtoFinishing): Finishing {
  const { region, crop, scalePercent, position, outputWidth, outputHeight } = message;
  const { sizeMaxMegapixels, background, enlarge, aspectRatio, quality, shadow } = message;
  return {
    ...(region === undefined ? {} : { region: regionFromProto(region, 'finishing.region') }),
    ...(crop === undefined ? {} : { crop: cropFromProto(crop) }),
    ...(scalePercent === 0
      ? {}
      : { scalePercent: within(scalePercent, SCALE_PERCENT, 'scale_percent') }),
    ...(position === undefined ? {} : { position: positionFromProto(position.position) }),
    ...frameFromProto(outputWidth, outputHeight),
    ...(sizeMaxMegapixels === 0
      ? {}
      : {
          sizeMaxMegapixels: within(sizeMaxMegapixels, SIZE_MEGAPIXELS, 'size_max_megapixels'),
        }),
    ...(background === undefined ? {} : { background: backgroundFromProto(background) }),
    ...(enlarge === false && { enlarge }),
    ...(aspectRatio === undefined ? {} : { aspectRatio: ratioFromProto(aspectRatio, message) }),
    ...(quality !== 0 && { quality: within(quality, QUALITY, 'quality') }),
    ...(shadow === undefined ? {} : { shadow: shadowFromProto(shadow, background) }),
  };
}

/**
 * Checks that its lengths are numbers. @param name of the field, for an error
 * @throws ContractError INVALID_REQUEST
 */
export function regionFromProto(region: ProtoRegion, name: string): Region {
  return {
    left: lengthFromProto(region.left, `${name}.left`),
    top: lengthFromProto(region.top, `${name}.top`),
    right: lengthFromProto(region.right, `${name}.right`),
    bottom: lengthFromProto(region.bottom, `${name}.bottom`),
  };
}

function cropFromProto(crop: NonNullable<ProtoFinishing['crop']>): CropMargins {
  return {
    top: lengthFromProto(crop.marginTop, 'finishing.crop.margin_top'),
    right: lengthFromProto(crop.marginRight, 'finishing.crop.margin_right'),
    bottom: lengthFromProto(crop.marginBottom, 'finishing.crop.margin_bottom'),
    left: lengthFromProto(crop.marginLeft, 'finishing.crop.margin_left'),
  };
}

/** An absent length is 0. */
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

function frameFromProto(
  outputWidth: number,
  outputHeight: number,
): Pick<Finishing, 'outputWidth' | 'outputHeight'> {
  const side = { min: 1, max: IMAGE_SIDE_PX_MAX };
  if (outputWidth * outputHeight > FRAME_PIXELS_MAX) {
    throw invalid(`output_width times output_height must be at most ${FRAME_PIXELS_MAX} pixels`);
  }
  return {
    ...(outputWidth === 0 ? {} : { outputWidth: within(outputWidth, side, 'output_width') }),
    ...(outputHeight === 0 ? {} : { outputHeight: within(outputHeight, side, 'output_height') }),
  };
}

function ratioFromProto(
  { width, height }: NonNullable<ProtoFinishing['aspectRatio']>,
  { outputWidth, outputHeight }: ProtoFinishing,
): NonNullable<Finishing['aspectRatio']> {
  if (outputWidth !== 0 && outputHeight !== 0) {
    throw invalid('aspect_ratio must be absent beside output_width and output_height');
  }
  return {
    width: within(width, RATIO_SIDE, 'aspect_ratio.width'),
    height: within(height, RATIO_SIDE, 'aspect_ratio.height'),
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
  return {
    opacity: within(opacity, SHADOW.opacity, 'shadow.opacity'),
    blur: within(blur, SHADOW.length, 'shadow.blur'),
    offsetX: within(offsetX, SHADOW.length, 'shadow.offset_x'),
    offsetY: within(offsetY, SHADOW.length, 'shadow.offset_y'),
  };
}

function given<Fields extends object>(fields: Fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [Name in keyof Fields]?: NonNullable<Fields[Name]>;
  };
}

function within(value: number, { min, max }: { min: number; max: number }, name: string): number {
  if (value >= min && value <= max) return value;
  throw invalid(`${name} must be from ${min} to ${max}`);
}

function invalid(detail: string): ContractError {
  return new ContractError('INVALID_REQUEST', `finishing.${detail}.`);
}
