/**
 * The Accept header (RFC 9110 section 12.5.1): whether a caller takes JSON or the picture itself.
 *
 * | Accept                                      | answer                                             |
 * |---------------------------------------------|----------------------------------------------------|
 * | none, or no image type with a quality above 0 | JSON, whatever else it takes or refuses          |
 * | with `text/html`                            | JSON: what browsers, and the HTTP clients of some  |
 * |                                             | languages, send of themselves                      |
 * | an image type, and JSON not before it       | the picture, in the format it prefers              |
 * | an image type that is not made, and no JSON | none: the request is refused                       |
 *
 * Before means: a higher quality, else named more exactly, else named first. Pure.
 */
import Negotiator from 'negotiator';
import { contentTypeOf, type OutputFormat } from '#contract/formats.ts';

/** Browsers send 150 characters; a longer header is ignored. */
const ACCEPT_LENGTH_MAX = 1000;
/** As JSON is answered: a range may name the charset. */
const JSON_TYPE = 'application/json; charset=utf-8';
const IMAGE_RANGE = /^image\/./;
/** Types by which callers know a format, besides its own. */
const ALIASES: Readonly<Record<string, string>> = { 'image/jpeg': 'image/jpg' };

export interface AcceptHeader {
  /**
   * What comes first of JSON and the picture in one of these formats, the default first. 'none':
   * a picture, but in none of these formats.
   */
  prefer(formats: readonly OutputFormat[]): OutputFormat | 'json' | 'none';
}

const JSON_ALONE: AcceptHeader = { prefer: () => 'json' };

/** @param header all Accept headers of the request, joined by commas. What cannot be read is ignored. */
export function acceptedAnswers(header: string | undefined): AcceptHeader {
  if (header === undefined || header.length > ACCEPT_LENGTH_MAX) return JSON_ALONE;
  const negotiator = new Negotiator({ headers: { accept: header } });
  const named = negotiator.mediaTypes().map(range => range.toLowerCase());
  if (named.includes('text/html')) return JSON_ALONE;
  if (!named.some(range => IMAGE_RANGE.test(range))) return JSON_ALONE;
  return {
    prefer: formats => {
      // JSON stands first, so that a range that takes both means JSON.
      const answers: [type: string, answer: OutputFormat | 'json'][] = [[JSON_TYPE, 'json']];
      for (const format of formats) {
        const type = contentTypeOf(format);
        answers.push([type, format]);
        const alias = ALIASES[type];
        if (alias !== undefined) answers.push([alias, format]);
      }
      const [best] = negotiator.mediaTypes(answers.map(([type]) => type));
      return answers.find(([type]) => type === best)?.[1] ?? 'none';
    },
  };
}
