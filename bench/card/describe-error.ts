/** An error as one line of a table. */
const CHARACTERS_MAX = 400;

export function describeError(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.replaceAll(/\s*\n\s*/g, ' ').slice(0, CHARACTERS_MAX);
}
