export * from './buttons.ts';
export * from './forms.ts';
export * from './links.ts';
export * from './sections.ts';
export * from './tables.ts';
export * from './times.ts';
