/** Checks what a header says of a file that will follow, the image's or its background's. */
import { ContractError } from '#contract/errors.ts';
import { type InputFormat, inputFormatFromProto } from '#contract/formats.ts';
import {
  BACKGROUND_BYTES_MAX,
  BACKGROUND_PIXELS_MAX,
  IMAGE_BYTES_MAX,
  IMAGE_PIXELS_MAX,
  IMAGE_SIDE_PX_MAX,
} from '#contract/limits.ts';
import { InputFormat as ProtoInput } from '#gen/matting/v1/matte_service.ts';
import { requireJxlPixels } from '../picture/makeable.ts';
import type { PictureCapabilities } from '../picture/pool/picture-pool.ts';
import type { Size } from '../picture/size.ts';

const SHA256_BYTES = 32;

/** The fields that describe a file, as messages have them. */
interface FileFields {
  readonly contentLength: number;
  readonly sha256: Uint8Array;
  readonly inputFormat: ProtoInput;
  readonly width: number;
  readonly height: number;
}

/** A file that will come. */
export interface FileOrder {
  readonly contentLength: number;
  /** Undefined: not to be checked. */
  readonly sha256: Buffer | undefined;
  /** As the caller declared it, if it did: for the memory's count. The bytes decide the format. */
  readonly inputFormat: InputFormat | undefined;
  /** As the caller declared it; a larger one is refused by the decoder. */
  readonly declared: Size | undefined;
}

/** What a kind of file may be, and what comes before the names of its fields. */
export interface FileKind {
  readonly name: string;
  readonly prefix: string;
  readonly bytesMax: number;
  readonly pixelsMax: number;
}

export const IMAGE: FileKind = {
  name: 'the image',
  prefix: '',
  bytesMax: IMAGE_BYTES_MAX,
  pixelsMax: IMAGE_PIXELS_MAX,
};
export const BACKGROUND: FileKind = {
  name: 'the background',
  prefix: 'background_picture.',
  bytesMax: BACKGROUND_BYTES_MAX,
  pixelsMax: BACKGROUND_PIXELS_MAX,
};

/**
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE, IMAGE_RESOLUTION_TOO_LARGE,
 *   UNSUPPORTED_IMAGE_FORMAT, NODE_INCAPABLE
 */
export function checkFileFields(
  fields: FileFields,
  kind: FileKind,
  pictures: PictureCapabilities,
): FileOrder {
  const { contentLength, sha256 } = fields;
  if (contentLength === 0) throw invalid(kind, 'content_length is 0');
  if (contentLength > kind.bytesMax) {
    const detail = `the file of ${kind.name} has more than ${kind.bytesMax} bytes`;
    throw new ContractError('IMAGE_TOO_LARGE', detail);
  }
  if (sha256.length !== 0 && sha256.length !== SHA256_BYTES) {
    throw invalid(kind, `sha256 is neither empty nor ${SHA256_BYTES} bytes`);
  }
  const declared = readDeclared(fields, kind);
  return {
    contentLength,
    sha256: sha256.length === 0 ? undefined : Buffer.from(sha256),
    inputFormat: readFormat(fields.inputFormat, kind, declared, pictures),
    declared,
  };
}

function invalid({ prefix }: FileKind, detail: string): ContractError {
  return new ContractError('INVALID_REQUEST', `${prefix}${detail}`);
}

function readDeclared({ width, height }: FileFields, kind: FileKind): Size | undefined {
  if (width === 0 && height === 0) return undefined;
  if (width === 0 || height === 0) {
    throw invalid(kind, 'width and height are given together or not at all');
  }
  if (width > IMAGE_SIDE_PX_MAX || height > IMAGE_SIDE_PX_MAX) {
    const detail = `${kind.name} has more than ${IMAGE_SIDE_PX_MAX} pixels a side`;
    throw new ContractError('IMAGE_RESOLUTION_TOO_LARGE', detail);
  }
  if (width * height > kind.pixelsMax) {
    const detail = `${kind.name} has more than ${kind.pixelsMax} pixels`;
    throw new ContractError('IMAGE_RESOLUTION_TOO_LARGE', detail);
  }
  return { width, height };
}

/** Another node may have the codec; where nothing is declared the decoder will tell. */
function readFormat(
  value: ProtoInput,
  kind: FileKind,
  declared: Size | undefined,
  pictures: PictureCapabilities,
): InputFormat | undefined {
  const format = inputFormatFromProto(value);
  if (format === undefined && value !== ProtoInput.INPUT_FORMAT_UNSPECIFIED) {
    const detail = `${kind.prefix}input_format is not known here`;
    throw new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail);
  }
  if (format !== undefined && !pictures.inputFormats.includes(format)) {
    throw new ContractError('NODE_INCAPABLE', `this node cannot read ${format}`);
  }
  if (format === 'jxl' && declared !== undefined) {
    requireJxlPixels(declared.width * declared.height, pictures.jxlPixelsMax);
  }
  return format;
}
