/** The settings of the operator's name, colour and logo, on pages and mails. */

import type { EnvReader } from '@matting/program/env.ts';
import type { BrandSettings } from './brand.ts';

const BRAND_NAME = /^(?! )[^\p{C}\p{Zl}\p{Zp}]{1,40}(?<! )$/u;

export function readBrand(whole: EnvReader): BrandSettings {
  const reader = whole.section('Account area');
  return {
    name: reader.string('MATTING_BRAND_NAME', {
      about: `Your name on pages and in mails
        ([brand](accounts.md#your-name-colour-and-logo)).`,
      pattern: BRAND_NAME,
      expected: '1 to 40 characters in one line, without blanks at the ends',
      default: undefined,
    }),
    colour: reader.string('MATTING_BRAND_COLOUR', {
      about: 'Your colour there.',
      pattern: /^#[\da-f]{6}$/i,
      expected: 'a colour such as #0a7d5c',
      default: undefined,
    }),
    /** The file is read if the service has pages. */
    logoFile: reader.string('MATTING_BRAND_LOGO_FILE', {
      about: 'Your logo there: the path of an SVG or PNG file of at most 64 KiB.',
      default: undefined,
    }),
  };
}
