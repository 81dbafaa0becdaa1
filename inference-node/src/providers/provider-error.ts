/** A provider cannot be installed or used; for the operator, never for a caller of the API. */

/** The message is one line that says what is wrong and what to do; show it as it is. */
export class ProviderError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message.replace(/\s*\n\s*/g, ' '), { cause });
    this.name = 'ProviderError';
  }
}
