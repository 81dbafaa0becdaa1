/** The Prefer header (RFC 7240), as far as this service honours it. */

export interface Preferences {
  /** The caller would rather have the job at once than wait for its end. */
  readonly respondAsync: boolean;
  /** How long the caller would wait. */
  readonly waitS: number | undefined;
}

/** `token [= value]` of one preference; its parameters, after a semicolon, mean nothing here. */
const TOKEN = "([!#$%&'*+.^_`|~0-9A-Za-z-]+)";
const QUOTED_OR_PLAIN = '(?:"((?:[^"\\\\]|\\\\.)*)"|([^\\s";,]*))';
const PREFERENCE = new RegExp(`^${TOKEN}[ \\t]*(?:=[ \\t]*${QUOTED_OR_PLAIN})?[ \\t]*(?:;|$)`);
/** RFC 7240 section 4.3 takes delta-seconds; nine digits are 31 years. */
const DELTA_SECONDS = /^\d{1,9}$/;

/** Preferences that are honoured need 30; a longer header is ignored. */
const PREFER_LENGTH_MAX = 1000;

/** What cannot be read is ignored; of a preference given twice the first counts. */
export function parsePrefer(header: string | readonly string[] | undefined): Preferences {
  const values = new Map<string, string>();
  const text = [header ?? ''].flat().join(',');
  for (const member of text.length > PREFER_LENGTH_MAX ? [] : splitList(text)) {
    const match = PREFERENCE.exec(member);
    const name = match?.[1]?.toLowerCase();
    if (match === null || name === undefined || values.has(name)) continue;
    values.set(name, match[2]?.replaceAll(/\\(.)/g, '$1') ?? match[3] ?? '');
  }
  const wait = values.get('wait') ?? '';
  return {
    // An empty value is the same as none.
    respondAsync: values.get('respond-async') === '',
    waitS: DELTA_SECONDS.test(wait) ? Number(wait) : undefined,
  };
}

/** The members of a list, commas inside quotes left alone. */
function splitList(text: string): string[] {
  return (text.match(/(?:"(?:[^"\\]|\\.)*"|[^,"]|")+/g) ?? []).map(member => member.trim());
}
