// Line icons of 16 by 16 pixels. They are decoration: words next to them always give the meaning too.

const PATHS = {
  wave: "M1.5 5.5c3-3 6 3 9 0s3-1.5 4 0M1.5 10.500c3-3 6 3 9 0s3-1.5 4 0",
  jobs: "M2.5 3.500h11M2.5 8h11M2.5 12.500h7",
  queue: "M2.5 4h5M2.5 8h5M2.5 12h5M10.500 4h3v8h-3z",
  machines: "M2.5 2.500h11v4h-11zM2.5 9.500h11v4h-11zM5 4.500h.01M5 11.500h.01",
  shares: "M8 2.500a5.500 5.500 0 1 0 0 11 5.500 5.500 0 0 0 0-11zM8 2.500V8l4 3.800",
  disk: "M2.5 4c0-1 2.5-1.500 5.5-1.500s5.5.5 5.5 1.500-2.5 1.500-5.5 1.500S2.5 5 2.5 4zM2.5 4v8c0 1 2.5 1.500 5.5 1.500s5.5-.5 5.5-1.500V4M2.5 8c0 1 2.5 1.500 5.5 1.500s5.5-.5 5.5-1.500",
  people:
    "M6 2.500a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5zM1.500 13.500c0-2.500 2-4 4.500-4s4.500 1.500 4.500 4M10.500 3a2.300 2.300 0 0 1 0 4.300M12 9.800c1.600.5 2.500 1.800 2.500 3.700",
  shield: "M8 1.5 13.5 4v4c0 3.3-2.3 5.6-5.5 6.500C4.8 13.6 2.5 11.3 2.5 8V4z",
  key: "M5.5 7.5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM7.6 8.4 13.5 2.5M11 5l2 2",
  code: "M5.5 4.5 2 8l3.5 3.500M10.5 4.5 14 8l-3.5 3.5",
  moon: "M13.5 9.500A6 6 0 0 1 6.5 2.500a6 6 0 1 0 7 7z",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.500M8 13.500V15M1 8h1.500M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  exit: "M6 2.500H2.500v11H6M10 5l3 3-3 3M13 8H6",
  plus: "M8 3v10M3 8h10",
  search: "M7 2.500a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 13.5 13.5",
  pause: "M5 3v10M11 3v10",
  play: "M4.5 2.500v11l9-5.500z",
  stop: "M3.5 3.500h9v9h-9z",
  copy: "M5.5 5.500h8v8h-8zM3.5 10.500h-1v-8h8v1",
  pencil: "M2.5 13.5 3 10.500l7.5-7.5 2.5 2.500L5.5 13z",
  close: "m3.5 3.5 9 9M12.5 3.500l-9 9",
  chevron: "m6 3.5 4.5 4.500L6 12.5",
  warning: "M8 2 14.5 13.500h-13zM8 6.500v3M8 11.500h.01",
  upload: "M8 10.500v-8M4.5 6 8 2.5 11.5 6M2.5 10.500v3h11v-3",
  table: "M2 3h12v10H2zM2 6.5h12M2 10h12M6.5 3v10",
  tree: "M3.5 2.500v11M3.5 5h5M3.5 11h5M8.5 3.500h4v3h-4zM8.5 9.500h4v3h-4z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
