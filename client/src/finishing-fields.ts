/**
 * The fields of finishing. `make generate` writes this file from the rows of
 * proto/contract/finishing/table.json.
 */
export interface FinishingFields {
  /** A CSS colour, `transparent` or `original`. Send at most one of the three backgrounds. */
  readonly background?: string | undefined;
  /** The address of a picture behind the subject. It is scaled to cover the result and cropped around its centre. */
  readonly background_url?: string | undefined;
  /** `alpha` returns only the matte, in 8-bit grey. */
  readonly channels?: 'rgba' | 'alpha' | undefined;
  /** Crops the result to the subject. */
  readonly crop?: boolean | undefined;
  /** Room around the subject, with `crop`: 1, 2 or 4 lengths as in CSS, in px or % of the subject. */
  readonly crop_margin?: string | undefined;
  /** The share of the frame that the subject fills, `10%` to `100%`. */
  readonly scale?: string | undefined;
  /** The place of the subject in the frame: `original`, `center`, `x%` or `x% y%`. */
  readonly position?: string | undefined;
  /** Scales a larger result down to so many megapixels. */
  readonly size_max_megapixels?: number | undefined;
  /** The width of the frame, in pixels. */
  readonly output_width?: number | undefined;
  /** The height of the frame, in pixels. */
  readonly output_height?: number | undefined;
  /** Pads the frame to these proportions, such as `1:1`. */
  readonly aspect_ratio?: string | undefined;
  /** `false` never scales the subject above its own pixels. The frame keeps its size. */
  readonly enlarge?: boolean | undefined;
  /** The quality of JPEG, WebP or AVIF, 1 to 100. */
  readonly quality?: number | undefined;
  /** Keeps the subject only inside `x1 y1 x2 y2`, each in px or %. */
  readonly roi?: string | undefined;
  /** Draws a soft shadow of the subject, inside the frame. */
  readonly shadow?: 'drop' | undefined;
  /** The opacity of the shadow in %, 1 to 100. Default: 50. */
  readonly shadow_opacity?: number | undefined;
  /** The blur of the shadow in % of the subject's longer side, 0 to 20. Default: 3. */
  readonly shadow_blur?: number | undefined;
  /** The offset `x y` of the shadow, each 0 to 20 % of the subject's longer side. Default: `0 2`. */
  readonly shadow_offset?: string | undefined;
}

/** Each option by its name: its value, which a switch does not have, and its meaning. */
export const FINISHING_OPTIONS = {
  background: ['<colour>', 'put a CSS colour behind the subject, or original'],
  'background-url': ['<url>', 'put a picture behind it; the service downloads it'],
  'background-file': ['<file>', 'put a picture from this machine behind it'],
  channels: ['<channels>', 'rgba, or alpha for the matte only'],
  crop: ['', 'crop to the subject'],
  'crop-margin': ['<lengths>', 'margins around the subject: 1, 2 or 4 lengths in px or %'],
  scale: ['<percent>', 'share of the frame that the subject fills, 10% to 100%'],
  position: ['<place>', 'place of the subject in the frame: original, center or percentages'],
  'size-max-megapixels': ['<n>', 'scale larger results down'],
  'output-width': ['<pixels>', 'width of the frame'],
  'output-height': ['<pixels>', 'height of the frame'],
  'aspect-ratio': ['<w:h>', 'proportions of the frame, such as 1:1'],
  enlarge: ['<boolean>', 'false: never scale the subject above its own pixels'],
  quality: ['<n>', 'quality of JPEG, WebP or AVIF, 1 to 100'],
  roi: ['<region>', 'keep the subject only inside x1 y1 x2 y2, in px or %'],
  shadow: ['<kind>', 'drop: a soft shadow of the subject'],
  'shadow-opacity': ['<percent>', 'opacity of the shadow, 1 to 100 (default: 50)'],
  'shadow-blur': ['<percent>', 'blur of the shadow, 0 to 20 % of the subject (default: 3)'],
  'shadow-offset': ['<offset>', 'x y of the shadow, each 0 to 20 % of the subject (default: 0 2)'],
} as const;
