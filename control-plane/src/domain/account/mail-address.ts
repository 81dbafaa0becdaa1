/** Mail addresses as people type them, and what they are compared by. */

/** RFC 5321 section 4.5.3.1.3, without the angle brackets. */
export const MAIL_LENGTH_MAX = 254;

/** Not every address that the RFCs allow: those that people have. */
const FORM =
  /^[^\s@"(),:;<>[\\\]\p{Cc}\p{Cf}]{1,64}@[\p{L}\p{N}](?:[\p{L}\p{N}.-]*[\p{L}\p{N}])?$/u;

/** Undefined: not the form of an address. Without blanks around it, in Unicode's composed form. */
export function parseMail(text: string): string | undefined {
  const mail = text.trim().normalize('NFC');
  if (!mail.isWellFormed() || Buffer.byteLength(mail) > MAIL_LENGTH_MAX) return undefined;
  return FORM.test(mail) ? mail : undefined;
}

/** Two addresses of one person have the same: letters' case says nothing. */
export function mailKeyOf(mail: string): string {
  return mail.normalize('NFC').toLowerCase().normalize('NFC');
}
