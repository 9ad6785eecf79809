// Entry point: providers around the routes. Everything else a page needs is loaded with that page.
import "./ui/styles/index.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { BrowserRouter } from "react-router";
import { App } from "./App";
import { queryClient } from "./api/queries";
import { LiveProvider } from "./live/LiveProvider";

const host = document.getElementById("root");
if (!host) throw new Error("index.html has no element #root");
createRoot(host).render(
  <StrictMode>
    <QueryClientProvider client={queryClient}>
      <BrowserRouter>
        <LiveProvider>
          <App />
        </LiveProvider>
      </BrowserRouter>
    </QueryClientProvider>
  </StrictMode>,
);
