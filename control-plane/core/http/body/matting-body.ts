/** The fields of a submission as JSON; every other one is refused. */
import { MATTING_FIELDS, type TextField } from '../../submission/submit-fields.ts';
import { type JsonFields, JsonFieldsParser } from './json-fields.ts';
import type { LiteralKind } from './json-literal.ts';
import { unknownField } from './malformed.ts';

/** What is no string in every caller's mind. */
const LITERALS: Readonly<Record<string, readonly LiteralKind[]>> = {
  crop: ['boolean'],
  size_max_megapixels: ['number'],
  output_width: ['number'],
  output_height: ['number'],
};

const FIELDS: JsonFields<TextField> = {
  image: 'image_base64',
  fieldOf(name) {
    const field = MATTING_FIELDS.find(known => known === name);
    if (field === undefined) throw unknownField(name);
    return field;
  },
  literalsOf: field => LITERALS[field ?? ''] ?? [],
};

export class MattingBodyParser extends JsonFieldsParser<TextField> {
  constructor() {
    super(FIELDS);
  }
}
