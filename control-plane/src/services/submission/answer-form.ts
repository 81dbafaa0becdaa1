/**
 * The form of a synchronous answer, JSON or the picture itself, and the format that a request is
 * made in where it names none. Pure: REST reads Accept (http/headers/accept.ts), other interfaces
 * may say what they take in another way.
 */
import { ContractError } from '#contract/errors.ts';
import { contentTypeOf, type OutputFormat } from '#contract/formats.ts';

/** What a caller takes as its answer. The same answer for the same formats, whatever their order. */
export interface AcceptedAnswers {
  /**
   * The caller's choice among JSON and the picture in one of these formats, the service's
   * favourite first. 'none': the caller takes a picture, but in none of these formats.
   */
  prefer(formats: readonly OutputFormat[]): OutputFormat | 'json' | 'none';
}

export const JSON_ALONE: AcceptedAnswers = { prefer: () => 'json' };

/** Of a request that names none and whose caller takes JSON. */
export const DEFAULT_FORMAT: OutputFormat = 'png';

/**
 * The format of a request's result: the one it names, else the one its caller takes, else PNG.
 * @param formats what the request may be made in where it names none, the default first
 * @throws ContractError NOT_ACCEPTABLE
 */
export function requireAcceptedFormat(
  named: OutputFormat | undefined,
  formats: readonly OutputFormat[],
  accepts: AcceptedAnswers,
): OutputFormat {
  const choice = accepts.prefer(named === undefined ? formats : [named]);
  if (choice === 'json') return named ?? DEFAULT_FORMAT;
  if (choice !== 'none') return choice;
  if (named === undefined) {
    const types = formats.map(contentTypeOf).join(', ');
    throw new ContractError('NOT_ACCEPTABLE', `Accept takes neither JSON nor one of ${types}`);
  }
  const detail = `output_format makes ${contentTypeOf(named)}, which Accept does not take`;
  const fieldErrors = [{ field: 'output_format', detail }];
  throw new ContractError('NOT_ACCEPTABLE', detail, { fieldErrors });
}
