/** The image formats of the contract: wire values, media types, and their numbers in gRPC. */
import {
  InputFormat as ProtoInput,
  OutputFormat as ProtoOutput,
} from '../gen/matting/v1/matte_service.ts';

/** heic is HEIF with a picture in HEVC: a node reads it where its operator installed a decoder. */
export const INPUT_FORMATS = ['jpeg', 'png', 'webp', 'avif', 'jxl', 'heic'] as const;
export type InputFormat = (typeof INPUT_FORMATS)[number];

/** The formats that a request can name without finishing. Their results are transparent. */
export const TRANSPARENT_FORMATS = ['png', 'webp', 'avif', 'jxl'] as const;
/**
 * All formats that a node writes. jpeg has no alpha and needs an opaque background. zip is an
 * archive of the colours as JPEG and the alpha as PNG.
 */
export const OUTPUT_FORMATS = [...TRANSPARENT_FORMATS, 'jpeg', 'zip'] as const;
export type OutputFormat = (typeof OUTPUT_FORMATS)[number];

/** The name of each format in documents and pages. */
export const FORMAT_NAMES: Readonly<Record<OutputFormat, string>> = {
  png: 'PNG',
  webp: 'WebP',
  avif: 'AVIF',
  jxl: 'JPEG XL',
  jpeg: 'JPEG',
  zip: 'ZIP',
};

/** `image/<format>`, for every output format but the archive. */
export function contentTypeOf(format: OutputFormat): string {
  return format === 'zip' ? 'application/zip' : `image/${format}`;
}

/** The output format a wire value names in whatever case, or undefined; `jpg` is jpeg. */
export function parseOutputFormat(value: string): OutputFormat | undefined {
  const lower = value.toLowerCase();
  return lower === 'jpg' ? 'jpeg' : OUTPUT_FORMATS.find(format => format === lower);
}

/** Whether a result in that format is transparent where nothing is seen. */
export function isTransparentFormat(
  format: OutputFormat,
): format is (typeof TRANSPARENT_FORMATS)[number] {
  return TRANSPARENT_FORMATS.some(known => known === format);
}

const INPUT_TO_PROTO = {
  jpeg: ProtoInput.INPUT_FORMAT_JPEG,
  png: ProtoInput.INPUT_FORMAT_PNG,
  webp: ProtoInput.INPUT_FORMAT_WEBP,
  avif: ProtoInput.INPUT_FORMAT_AVIF,
  jxl: ProtoInput.INPUT_FORMAT_JXL,
  heic: ProtoInput.INPUT_FORMAT_HEIC,
} as const satisfies Record<InputFormat, ProtoInput>;

const OUTPUT_TO_PROTO = {
  png: ProtoOutput.OUTPUT_FORMAT_PNG,
  webp: ProtoOutput.OUTPUT_FORMAT_WEBP,
  avif: ProtoOutput.OUTPUT_FORMAT_AVIF,
  jxl: ProtoOutput.OUTPUT_FORMAT_JXL,
  jpeg: ProtoOutput.OUTPUT_FORMAT_JPEG,
  zip: ProtoOutput.OUTPUT_FORMAT_ZIP,
} as const satisfies Record<OutputFormat, ProtoOutput>;

export function inputFormatToProto(format: InputFormat): ProtoInput {
  return INPUT_TO_PROTO[format];
}

export function outputFormatToProto(format: OutputFormat): ProtoOutput {
  return OUTPUT_TO_PROTO[format];
}

/** undefined for UNSPECIFIED and for numbers of a newer protocol. */
export function inputFormatFromProto(value: ProtoInput): InputFormat | undefined {
  return INPUT_FORMATS.find(format => INPUT_TO_PROTO[format] === value);
}

/** undefined for UNSPECIFIED and for numbers of a newer protocol. */
export function outputFormatFromProto(value: ProtoOutput): OutputFormat | undefined {
  return OUTPUT_FORMATS.find(format => OUTPUT_TO_PROTO[format] === value);
}
