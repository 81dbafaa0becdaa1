/** A bug: the replaced part of a source, and its replacement. */
export interface Change {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

export const changed = (source: string, { start, end, text }: Change): string =>
  source.slice(0, start) + text + source.slice(end);
