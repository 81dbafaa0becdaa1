import {
  InputFormat as ProtoInput,
  OutputFormat as ProtoOutput,
} from '../gen/matting/v1/matte_service.ts';

/** heic: HEVC in HEIF, which a node reads if its operator installed a decoder. */
export const INPUT_FORMATS = ['jpeg', 'png', 'webp', 'avif', 'jxl', 'heic'] as const;
export type InputFormat = (typeof INPUT_FORMATS)[number];

/** Allowed without finishing. Their results are transparent. */
export const TRANSPARENT_FORMATS = ['png', 'webp', 'avif', 'jxl'] as const;
/** jpeg needs an opaque background. zip has the colours as JPEG and the alpha as PNG. */
export const OUTPUT_FORMATS = [...TRANSPARENT_FORMATS, 'jpeg', 'zip'] as const;
export type OutputFormat = (typeof OUTPUT_FORMATS)[number];

/** For documents and pages. */
export const FORMAT_NAMES: Readonly<Record<OutputFormat, string>> = {
  png: 'PNG',
  webp: 'WebP',
  avif: 'AVIF',
  jxl: 'JPEG XL',
  jpeg: 'JPEG',
  zip: 'ZIP',
};

export function contentTypeOf(format: OutputFormat): string {
  return format === 'zip' ? 'application/zip' : `image/${format}`;
}

/** Case does not matter; `jpg` is jpeg. */
export function parseOutputFormat(value: string): OutputFormat | undefined {
  const lower = value.toLowerCase();
  return lower === 'jpg' ? 'jpeg' : OUTPUT_FORMATS.find(format => format === lower);
}

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

/** undefined: UNSPECIFIED, or a number of a newer protocol. */
export function inputFormatFromProto(value: ProtoInput): InputFormat | undefined {
  return INPUT_FORMATS.find(format => INPUT_TO_PROTO[format] === value);
}

/** undefined: UNSPECIFIED, or a number of a newer protocol. */
export function outputFormatFromProto(value: ProtoOutput): OutputFormat | undefined {
  return OUTPUT_FORMATS.find(format => OUTPUT_TO_PROTO[format] === value);
}
