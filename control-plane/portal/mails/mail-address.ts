/** Parses mail addresses as people type them, and makes the keys that compare them. */

/** RFC 5321 section 4.5.3.1.3, without the angle brackets. */
const MAIL_LENGTH_MAX = 254;

/** Accepts the addresses that people have, which are fewer than the RFCs allow. */
const FORM =
  /^[^\s@"(),:;<>[\\\]\p{Cc}\p{Cf}]{1,64}@[\p{L}\p{N}](?:[\p{L}\p{N}.-]*[\p{L}\p{N}])?$/u;

/** Strips blanks and composes Unicode. Undefined: the text does not have the form of an address. */
export function parseMail(text: string): string | undefined {
  const mail = text.trim().normalize('NFC');
  if (!mail.isWellFormed() || Buffer.byteLength(mail) > MAIL_LENGTH_MAX) return undefined;
  return FORM.test(mail) ? mail : undefined;
}

/** Two addresses of one person have the same key, since letters' case says nothing. */
export function mailKeyOf(mail: string): string {
  return mail.normalize('NFC').toLowerCase().normalize('NFC');
}

/**
 * Names a person whom an identity provider knows: by the mail that the provider gives, or else its
 * subject, with the provider behind it. No mail that somebody types has a blank or a bracket, so
 * nobody has another's name: a mail that a provider gives proves nothing here.
 */
export function providerName(of: {
  readonly mail: unknown;
  /** Printable ASCII. */
  readonly subject: string;
  readonly issuer: string;
}): string {
  const mark = ` (${new URL(of.issuer).host.slice(0, MARK_LENGTH_MAX)})`;
  const room = MAIL_LENGTH_MAX - mark.length;
  const mail = typeof of.mail === 'string' ? parseMail(of.mail) : undefined;
  const fits = mail !== undefined && mail.length <= room;
  return `${fits ? mail : of.subject.slice(0, room)}${mark}`;
}

/** The provider's host is cut at this length. */
const MARK_LENGTH_MAX = 100;

/** Finds the mail address in what a person is called; undefined: there is none. */
export function addressOf(name: string): string | undefined {
  return parseMail(name.replace(/ \([^()]*\)$/, ''));
}
