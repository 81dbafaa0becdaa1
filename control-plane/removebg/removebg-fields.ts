/** The fields of the remove.bg interface, as they come in every form of its bodies. */
import type { TextValue } from '../http/bodies.ts';

/** Those that are kept as text. */
export const REMOVEBG_TEXTS = [
  'image_url',
  'size',
  'type',
  'type_level',
  'format',
  'roi',
  'crop',
  'crop_margin',
  'scale',
  'position',
  'channels',
  'add_shadow',
  'shadow_type',
  'shadow_opacity',
  'shadow_method',
  'semitransparency',
  'bg_color',
  'bg_image_url',
] as const;
export type RemovebgText = (typeof REMOVEBG_TEXTS)[number];

/** Those whose bytes go into an upload. */
export const REMOVEBG_PICTURES = ['image_file', 'image_file_b64', 'bg_image_file'] as const;
export type RemovebgPicture = (typeof REMOVEBG_PICTURES)[number];

/** What was sent. An empty field is absent: clients send every field they know. */
export interface RemovebgFields {
  readonly texts: ReadonlyMap<RemovebgText, TextValue>;
  /** Those that came with a byte at least; at most one of the two of the image. */
  readonly pictures: ReadonlySet<RemovebgPicture>;
}
