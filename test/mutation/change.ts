/** One bug as text: what goes of a source, and what comes instead. */
export interface Change {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

export const changed = (source: string, { start, end, text }: Change): string =>
  source.slice(0, start) + text + source.slice(end);
