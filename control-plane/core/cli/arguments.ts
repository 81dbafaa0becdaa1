import { isName, NAME_LENGTH_MAX } from '@matting/accounts/account-store.ts';
import {
  CREDITS_AMOUNT_MAX,
  isCreditAmount,
  isLedgerReference,
  isReservedReference,
} from '@matting/accounts/ledger/ledger.ts';
import { InvalidArgumentError } from 'commander';

export function parseName(text: string): string {
  const name = text.normalize('NFC');
  if (!isName(name)) {
    throw new InvalidArgumentError(
      `Use 1 to ${NAME_LENGTH_MAX} characters, without control characters, spaces at the ends ` +
        'or a leading "-". A UUID is not a name.',
    );
  }
  return name;
}

export function typed<T>(read: (text: string) => T | undefined, refusal: string) {
  return (text: string): T => {
    const value = read(text);
    if (value !== undefined) return value;
    throw new InvalidArgumentError(refusal);
  };
}

export const parseCredits = typed(text => {
  const credits = /^[0-9]{1,10}$/.test(text) ? Number(text) : 0;
  return isCreditAmount(credits) ? credits : undefined;
}, `Use a whole number of credits from 1 to ${CREDITS_AMOUNT_MAX}.`);

/** Takes at most nine digits. @param refusal the message for any other text */
export function wholeNumber(
  min: number,
  max: number,
  refusal = `Use a whole number from ${min} to ${max}.`,
) {
  return typed(text => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
    return value >= min && value <= max ? value : undefined;
  }, refusal);
}

export function parseReference(text: string): string {
  if (!isLedgerReference(text)) {
    throw new InvalidArgumentError(
      'Use 1 to 128 printable ASCII characters, without spaces at the ends.',
    );
  }
  if (isReservedReference(text)) {
    throw new InvalidArgumentError(
      'This reference belongs to an order. Use "matting orders" for it.',
    );
  }
  return text;
}
