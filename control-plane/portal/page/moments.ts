/** Writes moments on a page, and words with children in them. */

import { type Child, html } from './html.ts';

/**
 * A moment as the page has it without scripts; times.js makes it the reader's own.
 * @param at milliseconds or ISO 8601 @param none where there is no time
 */
export function time(
  at: number | string | null,
  format: (instantMs: number) => string,
  none: Child = null,
): Child {
  return timeElement(at, format, none, false);
}

/** Shows a moment in a list of what happened lately: `3 min ago`. */
export function ago(
  at: number | string | null,
  format: (instantMs: number) => string,
  none: Child = null,
): Child {
  return timeElement(at, format, none, true);
}

function timeElement(
  at: number | string | null,
  format: (instantMs: number) => string,
  none: Child,
  isLately: boolean,
): Child {
  if (at === null) return none;
  const instant = new Date(at);
  return html`<time datetime=${instant.toISOString()} data-ago=${isLately || undefined}>${format(instant.getTime())}</time>`;
}

/** Fills words with children: `until {time}`, with the moment as `time` has it. */
export function phrase(text: string, values: Readonly<Record<string, Child>>): Child[] {
  const parts = text.split(/\{(\w+)\}/);
  return parts.map((part, index) =>
    index % 2 === 1 && Object.hasOwn(values, part) ? values[part] : part,
  );
}
