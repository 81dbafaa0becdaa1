/** RFC 5321 section 4.5.3.1.3, without the angle brackets. */
const MAIL_LENGTH_MAX = 254;

/** Common addresses. The RFCs allow more. */
const FORM =
  /^[^\s@"(),:;<>[\\\]\p{Cc}\p{Cf}]{1,64}@[\p{L}\p{N}](?:[\p{L}\p{N}.-]*[\p{L}\p{N}])?$/u;

/** Strips blanks and composes Unicode. Undefined: not an address. */
export function parseMail(text: string): string | undefined {
  const mail = text.trim().normalize('NFC');
  if (!mail.isWellFormed() || Buffer.byteLength(mail) > MAIL_LENGTH_MAX) return undefined;
  return FORM.test(mail) ? mail : undefined;
}

/** Addresses that differ only in case have the same key. */
export function mailKeyOf(mail: string): string {
  return mail.normalize('NFC').toLowerCase().normalize('NFC');
}

/**
 * The name of an identity provider's person: their mail or subject, then the provider. A typed mail
 * has no blank or bracket, so the names cannot collide: a provider's mail proves nothing here.
 */
export function providerName(of: {
  readonly mail: unknown;
  readonly subject: string;
  readonly issuer: string;
}): string {
  const mark = ` (${new URL(of.issuer).host.slice(0, MARK_LENGTH_MAX)})`;
  const room = MAIL_LENGTH_MAX - mark.length;
  const mail = typeof of.mail === 'string' ? parseMail(of.mail) : undefined;
  const fits = mail !== undefined && mail.length <= room;
  return `${fits ? mail : of.subject.slice(0, room)}${mark}`;
}

const MARK_LENGTH_MAX = 100;

export function addressOf(name: string): string | undefined {
  return parseMail(name.replace(/ \([^()]*\)$/, ''));
}
